"""Built-in blocks: what the encoders f are made of. Importing this package registers them."""

from alray.nn.blocks import embedding, linear, lstm, residual, stem, transformer, vgg
from alray.nn.blocks.registry import builder, registered

__all__ = ["builder", "embedding", "linear", "lstm", "registered", "residual", "stem", "transformer", "vgg"]
