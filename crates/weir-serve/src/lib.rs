//! OpenAI frontend, router, discovery and worker host.
