"""Look at the model's speed from outside: laws of scaling, and what others measured."""
