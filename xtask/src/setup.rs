//! What the tests need beyond Rust and a C linker: Python with a few pinned packages.
//!
//! They live in `.venv` inside the workspace, so nothing outside it changes. The one exception is Debian's
//! `python3-venv`, which is installed when it is missing and we are root. Invariant: done once, it costs two file
//! reads; whatever cannot be installed is named in one line with what to do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::process;

const REQUIREMENTS: &str = "acceptance/requirements.txt";

/// Makes the environment if it is not there and returns its Python.
pub(crate) fn run(root: &Path) -> Result<PathBuf> {
    let venv = root.join(".venv");
    let python = venv.join("bin/python");
    let stamp = venv.join("installed.txt");
    let wanted =
        fs::read_to_string(root.join(REQUIREMENTS)).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted)
        && succeeds(&python, &["-c", "import openai, pytest"])
    {
        return Ok(python);
    }
    make_venv(root, &venv)?;
    println!("installing the packages of {REQUIREMENTS} into .venv");
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-r",
        REQUIREMENTS,
    ];
    ensure!(
        process::run(&mut process::command(root, &python, &pip))?,
        "pip could not install {REQUIREMENTS} (its lines above say why); \
         it needs a PyPI index: check the network or pip's index setting, then run `cargo xtask setup` again"
    );
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(python)
}

fn make_venv(root: &Path, venv: &Path) -> Result<()> {
    ensure!(
        succeeds(
            "python3",
            &["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]
        ),
        "python3 is missing or older than 3.10; install it (Debian: `apt-get install python3 python3-venv`)"
    );
    if venv.exists() {
        fs::remove_dir_all(venv).with_context(|| format!("cannot remove the old {}", venv.display()))?;
    }
    if !succeeds("python3", &["-c", "import venv, ensurepip"]) {
        install_venv_module(root)?;
    }
    let made = process::run(&mut process::command(root, "python3", &["-m", "venv", ".venv"]))?;
    ensure!(made, "`python3 -m venv .venv` failed (its lines above say why)");
    Ok(())
}

fn install_venv_module(root: &Path) -> Result<()> {
    const TODO: &str =
        "install it as root with `apt-get install python3-venv`, then run `cargo xtask setup` again";
    ensure!(
        succeeds("apt-get", &["--version"]),
        "python3 has no module venv and there is no apt-get: install it"
    );
    ensure!(is_root(), "python3 has no module venv; {TODO}");
    println!("installing Debian's python3-venv");
    let apt = |args: &[&str]| {
        let mut command = process::command(root, "apt-get", args);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        process::run(&mut command)
    };
    let install = [
        "install",
        "--yes",
        "--quiet",
        "--no-install-recommends",
        "python3-venv",
    ];
    if !(apt(&["update", "--quiet"])? && apt(&install)?) {
        bail!("apt-get could not install python3-venv (its lines above say why); {TODO}");
    }
    Ok(())
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// True if the program is there and says yes; its output is of no interest.
fn succeeds(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|output| output.status.success())
}
