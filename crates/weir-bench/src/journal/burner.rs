//! Processes that keep every core busy, as a badly set thread pool beside an agent does.

use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// One busy process for each core, for as long as the value lives.
pub(crate) struct Burners(Vec<Child>);

impl Burners {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism()?.get();
        let mut burners = Self(Vec::new());
        for _ in 0..cores {
            let mut command = Command::new("sh");
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            burners.0.push(command.spawn().context("starting a burner")?);
        }
        Ok(burners)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that is gone already burns nothing.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
