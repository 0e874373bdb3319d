"""Base class and shared dialogs: messages, questions, progress, shortcuts, about."""
