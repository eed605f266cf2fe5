//! What users hold: command line, SDKs, published clients, packages, and every sample and page of the documents.

mod cli;
mod demo;
mod examples;
mod guides;
mod packages;
mod published;
mod release;
mod sdk;
