"""Forward-Forward (FF): rows with the right label get a high goodness at every component, others a low one."""
