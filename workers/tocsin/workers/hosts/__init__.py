"""Programs in which agents run, and what Tocsin puts into them: settings, hooks, extensions."""
