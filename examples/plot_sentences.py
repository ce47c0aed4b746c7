"""
Sentences and their embeddings
==============================

What do customers want? Sentences for ten intents are made up here, from phrases of which many occur in several intents,
and some intents are rare. Embeddings are those of latent semantic analysis (TF-IDF, then the 60 strongest directions),
since nothing has to be downloaded for that; take those of a language model in their place, and nothing else changes.
"""

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import capri
from capri.report import ClassErrorDisplay, OffsetsDisplay

TOPICS = {
    "track order": "where is my parcel|when will it arrive|has it been sent yet|the tracking number says nothing",
    "cancel order": "stop my order|i do not want it any more|please do not send it|i ordered by mistake",
    "return": "send it back|it does not fit|how do i return this|the label for sending it back is missing",
    "refund": "when do i get my money back|the refund has not arrived|you still owe me|pay me back",
    "change address": "i have moved|send it to another address|my street is wrong|the new address is not saved",
    "payment failed": "my card was refused|i cannot pay|the payment did not go through|i was charged twice",
    "invoice": "i need a bill|the invoice is missing|the bill shows a wrong amount|send the bill to my company",
    "warranty": "it broke after a month|is this covered|the screen is dead|can it be repaired",
    "delete account": "remove my data|close my account|forget me|i want to leave",
    "complaint": "i am angry|this is the third time|nobody answers|i want to speak to someone else",
}
FILLERS = ["hello", "please help", "thank you", "it is urgent", "about my last order", "what can i do", "once again"]
names = np.array(list(TOPICS))
counts = np.geomspace(800, 12, len(names)).astype(int)


def sentence(topic, rng):
    """Words of one or two phrases, at times of another topic's, with fillers and gaps."""
    phrases = list(rng.choice(TOPICS[topic].split("|"), 1 + (rng.random() < 0.4)))
    if rng.random() < 0.45:
        phrases.append(rng.choice(TOPICS[rng.choice(names)].split("|")))
    words = " ".join(rng.permutation([*phrases, *rng.choice(FILLERS, 2)])).split()
    return " ".join(word for word in words if rng.random() < 0.75)


def sample(sizes, seed):
    rng = np.random.default_rng(seed)
    labels = np.repeat(names, sizes)
    return [sentence(topic, rng) for topic in labels], labels


train, val, test = sample(counts, 0), sample([60] * 10, 1), sample([200] * 10, 2)
embed = make_pipeline(TfidfVectorizer(), TruncatedSVD(60, random_state=0)).fit(train[0])
model = LogisticRegression(C=10, max_iter=1000).fit(embed.transform(train[0]), train[1])


def scores(texts):
    """Columns in the order of the model's classes, which is that of the alphabet."""
    return model.decision_function(embed.transform(texts))


print(train[0][0], "·", train[0][-1])
known = dict(zip(names.tolist(), counts.tolist(), strict=True))
tuned = capri.LogitAdjuster("cvar:0.2", classes=model.classes_).fit(scores(val[0]), val[1], class_counts=known)
tuned.validation_

# %%
# On sentences that neither training nor tuning has seen:

display = ClassErrorDisplay.from_estimator(tuned, scores(test[0]), test[1], class_counts=known)

# %%
# What was subtracted from the scores of each intent. Most of it follows from how frequent and how hard an intent is;
# the rest is its own.

display = OffsetsDisplay.from_estimator(tuned)

# %%
# The report:

report = tuned.report(scores(test[0]), test[1])
report
