//! Flags of `run` and `serve` for what surrounds a job: image, virtual environment, copy of code, terminal, messages.

use crate::failure::Failure;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use trainyard_api::{JobSpec, Notify, NotifyOn};
use trainyard_daemon::notify::NotifyRules;
use trainyard_experiment::options::span;

/// What a command runs in.
#[derive(Debug, Args)]
#[command(next_help_heading = "Surroundings")]
pub struct SurroundingsArgs {
    /// Run it in a container image, by podman, docker or apptainer, whichever is there.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// A directory that the image sees beside the working directory (repeatable): PATH or PATH:ro.
    #[arg(long = "mount", value_name = "PATH", requires = "image")]
    pub mounts: Vec<String>,
    /// Run it in a virtual environment of Python.
    #[arg(long, value_name = "DIR", conflicts_with = "image")]
    pub venv: Option<PathBuf>,
    /// Copy the working directory now, and run it in the copy.
    #[arg(long)]
    pub snapshot: bool,
    /// Give it this terminal: what is typed here goes to it. It is neither moved nor tried again.
    #[arg(long, conflicts_with = "detach")]
    pub interactive: bool,
    /// End it when its GPUs have done nothing for this long, such as 30m [default with --interactive: 1h].
    #[arg(long, value_name = "SPAN")]
    pub idle: Option<String>,
    /// Have its end told to this address, of those that the operator allows.
    #[arg(long, value_name = "URL")]
    pub notify_url: Option<String>,
    /// Have its end told by mail.
    #[arg(long, value_name = "ADDRESS")]
    pub notify_mail: Option<String>,
    /// After which ends.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::End)]
    pub notify_on: When,
}

/// After which ends of a job a message is sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// After any.
    End,
    /// After any but a finish.
    Failure,
}

/// How long the GPUs of an interactive job may do nothing, unless its user says otherwise.
const IDLE_DEFAULT: &str = "1h";

impl SurroundingsArgs {
    /// The job with what these flags say.
    pub fn around(&self, job: JobSpec, here: &Path) -> Result<JobSpec, Failure> {
        let idle = self.idle.as_deref().or(self.interactive.then_some(IDLE_DEFAULT));
        let idle = idle.map(|text| span("--idle", text)).transpose()?;
        // Without a part of its own the path would end in a slash.
        let venv = self.venv.as_ref().map(|path| here.join(path).components().collect::<PathBuf>());
        Ok(JobSpec {
            image: self.image.clone(),
            mounts: self.mounts.clone(),
            venv: venv.map(|path| path.to_string_lossy().into_owned()),
            snapshot: self.snapshot,
            idle_seconds: idle.map(|span| span.as_secs_f64()),
            notify: Notify {
                url: self.notify_url.clone(),
                mail: self.notify_mail.clone(),
                on: match self.notify_on {
                    When::End => NotifyOn::End,
                    When::Failure => NotifyOn::Failure,
                },
            },
            ..job
        })
    }
}

/// Whom the daemon tells of ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Messages")]
pub struct NotifyArgs {
    /// POST every end of a job to this address.
    #[arg(long, value_name = "URL")]
    pub notify_url: Option<String>,
    /// Jobs may have their ends told to addresses that begin so (repeatable) [default: none].
    #[arg(long, value_name = "PREFIX")]
    pub notify_allow: Vec<String>,
    /// The command that sends a mail: it gets the mail on standard input, and `--` and the receiver as last arguments,
    /// such as "/usr/sbin/sendmail -i" [default: no mail].
    #[arg(long, value_name = "COMMAND")]
    pub mail_command: Option<String>,
    /// A domain to which jobs may have mail sent (repeatable) [default: users of this machine alone].
    #[arg(long, value_name = "DOMAIN", requires = "mail_command")]
    pub mail_domain: Vec<String>,
}

impl NotifyArgs {
    /// What the flags say.
    pub fn rules(&self) -> Result<NotifyRules, Failure> {
        let expected = "http://HOST/... or https://HOST/...";
        let prefix = |flag: &str, text: &String| {
            NotifyRules::prefix(text).ok_or_else(|| Failure::flag(flag, text, expected))
        };
        let url = self.notify_url.as_ref();
        url.map(|text| prefix("--notify-url", text)).transpose()?;
        let allowed = self.notify_allow.iter().map(|text| prefix("--notify-allow", text));
        let command = self.mail_command.as_deref().unwrap_or_default();
        let mail_command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if self.mail_command.is_some()
            && !mail_command.first().is_some_and(|it| it.starts_with('/'))
        {
            let expected = "a program by its absolute path, and its flags";
            return Err(Failure::flag("--mail-command", command, expected));
        }
        Ok(NotifyRules {
            url: url.cloned(),
            allowed: allowed.collect::<Result<_, _>>()?,
            mail_command,
            mail_domains: self.mail_domain.clone(),
        })
    }
}
