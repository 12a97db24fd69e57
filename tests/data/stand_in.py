"""A tokenizer for tests: every byte is a token, 256 is the end of text."""


class Bytes:
    name = "bytes"
    vocab_size = 257
    end_of_text = 256

    def encode(self, text):
        return list(text.encode("utf-8", errors="replace"))


class Failing(Bytes):
    """Fails on one word, as a worker may."""

    def encode(self, text):
        if "BOOM" in text:
            raise RuntimeError("the tokenizer failed on a document")
        return super().encode(text)


class Dying(Bytes):
    """Takes its whole process with it."""

    def encode(self, text):
        import os

        os._exit(3)


class Unsendable(Bytes):
    def __init__(self):
        self.lock = __import__("threading").Lock()
