"""The paper's tables and figures as commands: what it reports beside what we measure (`capri paper`)."""
