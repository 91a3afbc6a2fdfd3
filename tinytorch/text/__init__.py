"""Text as numbers: tokenizers, corpora, and windows for a language model to learn from.

A file imports only from files above it:

classes      which characters are letters, numbers and whitespace
splitting    text in pieces: the patterns of GPT-2, GPT-4 and Llama 3
bpe          byte-pair encoding, to be read
special      special tokens
kernels      the same compiled
characters   `CharacterTokenizer`
tokenizer    `BytePairTokenizer`
store        tokenizers as files
tiktoken     tiktoken's files
huggingface  Hugging Face's files
corpus       texts to learn from
windows      `Windows`: (input, target)
sampling     the next token from its logits
speculative  a small model proposes, the large one checks
generate     a `GPT` writes
"""

from tinytorch.text import corpus
from tinytorch.text.characters import CharacterTokenizer
from tinytorch.text.generate import generate
from tinytorch.text.huggingface import read_tokenizer_json, write_tokenizer_json
from tinytorch.text.sampling import Sampling
from tinytorch.text.speculative import speculate
from tinytorch.text.store import load_tokenizer, save_tokenizer
from tinytorch.text.tiktoken import read_tiktoken, write_tiktoken
from tinytorch.text.tokenizer import BytePairTokenizer
from tinytorch.text.windows import Windows

__all__ = [
    "BytePairTokenizer",
    "CharacterTokenizer",
    "Sampling",
    "Windows",
    "corpus",
    "generate",
    "load_tokenizer",
    "read_tiktoken",
    "read_tokenizer_json",
    "save_tokenizer",
    "speculate",
    "write_tiktoken",
    "write_tokenizer_json",
]
