"""Built-in blocks: what the encoders f are made of. Importing this package registers them."""

from alray.models.blocks import embedding, linear, lstm, residual, stem, transformer, vgg
from alray.models.blocks.registry import builder, registered

__all__ = ["builder", "embedding", "linear", "lstm", "registered", "residual", "stem", "transformer", "vgg"]
