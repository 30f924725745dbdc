"""SOLO: a language model whose components all read with a copy of the last readout, which is renewed now and then."""
