"""From launch to the first token of an LLM inference server, or to the reason why not."""

__version__ = "0.1.0"
