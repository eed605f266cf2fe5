//! What a guest is made of: kernel, initramfs and root file system.
