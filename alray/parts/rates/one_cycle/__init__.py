"""One rise to the full rate and one longer fall (Smith and Topin 2018, arXiv 1708.07120)."""
