"""How stages find one another. They meet over a store (`store.py`), form process groups (`groups.py`), and open the
edges between them (`edges.py`). No Ray: a stage is told where its store is."""
