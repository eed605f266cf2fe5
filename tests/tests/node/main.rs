//! One host: templates, snapshots, volumes, archives and recovery, through the node and without a server.

mod archive;
mod bake;
mod blobs;
mod damage;
mod disk;
mod fork;
mod interpreter;
mod sleep;
mod survive;
mod volume;
mod workshop;
