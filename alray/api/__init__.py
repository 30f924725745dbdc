"""The Python interface: what `import alray` offers. Each function calls what the command of its name calls."""
