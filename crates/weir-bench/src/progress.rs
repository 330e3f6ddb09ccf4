//! A progress bar on standard error, drawn only when that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `total` steps; drawn at most five times a second so that it takes no CPU from what is measured.
pub fn bar(total: u64, unit: &str) -> ProgressBar {
    let template = format!("{{elapsed_precise}} [{{wide_bar}}] {{pos}}/{{len}} {unit} {{msg}}");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let target = ProgressDrawTarget::stderr_with_hz(5);
    let bar = ProgressBar::with_draw_target(Some(total), target).with_style(style.progress_chars("=> "));
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_secs(1));
    }
    bar
}
