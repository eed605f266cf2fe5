//! Templates that are made: from the catalogue, from Dockerfiles and images, and through the interface.

mod builder;
mod catalogue;
mod large_templates;
mod setup;
mod templates;
