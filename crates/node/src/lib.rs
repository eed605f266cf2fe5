//! The host side: one driver per sandbox, bake, restore, fork, hibernate, re-attach, garbage collection.
