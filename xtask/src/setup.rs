//! What the tests need beyond Rust and a C linker: Python with a few pinned packages, and valgrind.
//!
//! The packages live in `.venv` inside the workspace, so nothing outside it changes. The exceptions are Debian's
//! `python3-venv` and `valgrind`, which are installed when they are missing and we are root. Invariant: done once, it costs two file
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

/// Installs valgrind, which counts instructions, if it is not there.
pub(crate) fn valgrind(root: &Path) -> Result<()> {
    if succeeds("valgrind", &["--version"]) {
        return Ok(());
    }
    install(root, "valgrind", "valgrind is missing")
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
        install(root, "python3-venv", "python3 has no module venv")?;
    }
    let made = process::run(&mut process::command(root, "python3", &["-m", "venv", ".venv"]))?;
    ensure!(made, "`python3 -m venv .venv` failed (its lines above say why)");
    Ok(())
}

/// Installs a package of Debian's, if we are root and there is an apt-get; `why` says what is missing.
fn install(root: &Path, package: &str, why: &str) -> Result<()> {
    let todo =
        format!("install it as root with `apt-get install {package}`, then run `cargo xtask setup` again");
    ensure!(
        succeeds("apt-get", &["--version"]),
        "{why} and there is no apt-get: install {package}"
    );
    ensure!(is_root(), "{why}; {todo}");
    println!("installing Debian's {package}");
    let apt = |args: &[&str]| {
        let mut command = process::command(root, "apt-get", args);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        process::run(&mut command)
    };
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    if !(apt(&["update", "--quiet"])? && apt(&install)?) {
        bail!("apt-get could not install {package} (its lines above say why); {todo}");
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
