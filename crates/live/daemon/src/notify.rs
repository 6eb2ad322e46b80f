//! Who is told when a job has ended: by a POST or by mail, from a thread of its own.
//!
//! The daemon may reach what a user cannot, so that a user's job may name only addresses that the operator allows. No
//! redirect is followed, for it could lead anywhere. A message is tried a few times and then given up: what must not be
//! missed is read from the events.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use trainyard_api::{Code, Notify, NotifyOn, Problem};
use trainyard_types::{End, printable};

/// Messages that wait to be sent; beyond that they are dropped, and it is logged.
const WAITING_MAX: usize = 4096;
/// Pauses before the second and the third try.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// How long one try may take.
const TRY_MAX: Duration = Duration::from_secs(10);
/// How long an address may be.
const ADDRESS_MAX: usize = 1024;

/// What the operator says about messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NotifyRules {
    /// Gets every end of a job.
    pub url: Option<String>,
    /// Beginnings of addresses that jobs may name.
    pub allowed: Vec<String>,
    /// The command that takes a mail on standard input and its receiver as last argument; nothing sends none.
    pub mail_command: Vec<String>,
    /// Domains to which jobs may have mail sent, beside users of this machine.
    pub mail_domains: Vec<String>,
}

/// The end of a job, to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// The job.
    pub job: u32,
    /// How it ended.
    pub end: End,
    /// Its name, user and tenant.
    pub names: [String; 3],
    /// Why, where a user or an operator said so.
    pub why: Option<String>,
    /// When it was submitted and when it ended, in seconds of Unix time.
    pub times: [f64; 2],
    /// Launches.
    pub attempts: u32,
    /// The exit code of the last one.
    pub exit_code: Option<i32>,
    /// Where its user wants it told.
    pub notify: Notify,
}

impl NotifyRules {
    /// Whether a beginning of addresses can be one: with a scheme, a host and a path.
    pub fn prefix(text: &str) -> Option<String> {
        let (_, rest) = split(text)?;
        Some(if rest.contains('/') { text.to_owned() } else { format!("{text}/") })
    }

    /// Whether a job may have this told.
    pub fn check(&self, notify: &Notify) -> Result<(), Problem> {
        if let Some(url) = &notify.url
            && !self.allows(url)
        {
            let allowed = match self.allowed.is_empty() {
                true => {
                    "none are allowed here; the operator names them with --notify-allow".to_owned()
                }
                false => format!("expected one that begins with {}", self.allowed.join(" or ")),
            };
            let detail = format!("`{url}` is no address that jobs may have told: {allowed}");
            return Err(Problem::field(Code::Denied, "notify.url", detail));
        }
        let Some(mail) = &notify.mail else { return Ok(()) };
        if self.mail_command.is_empty() {
            let detail = "no mail is sent here: the operator turns it on with --mail-command";
            return Err(Problem::field(Code::Denied, "notify.mail", detail));
        }
        if !is_mail(mail) {
            let detail = format!("`{mail}` is no address of a mail: expected NAME or NAME@DOMAIN");
            return Err(Problem::field(Code::BadInput, "notify.mail", detail));
        }
        match mail.split_once('@') {
            Some((_, domain)) if !self.mail_domains.iter().any(|one| one == domain) => {
                let detail = format!(
                    "no mail is sent to `{domain}`: the operator names domains with --mail-domain; a user of this \
                     machine is named without one"
                );
                Err(Problem::field(Code::Denied, "notify.mail", detail))
            }
            _ => Ok(()),
        }
    }

    /// Whether this end is to be told at all.
    pub fn wants(&self, notify: &Notify, end: End) -> bool {
        self.url.is_some() || (is_named(notify) && matches(notify.on, end))
    }

    fn allows(&self, url: &str) -> bool {
        split(url).is_some() && self.allowed.iter().any(|prefix| url.starts_with(prefix.as_str()))
    }
}

/// Whether a job names a recipient.
pub fn is_named(notify: &Notify) -> bool {
    notify.url.is_some() || notify.mail.is_some()
}

fn matches(on: NotifyOn, end: End) -> bool {
    match on {
        NotifyOn::End => true,
        NotifyOn::Failure => end != End::Finished,
    }
}

/// The scheme and the rest of an address that means what it seems to mean.
fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let plain = |c: char| c.is_ascii_graphic() && c != '\\';
    // A name before the host, or a way up the path, would lead past what is allowed.
    let is_safe = !authority.is_empty()
        && !authority.contains(['@', '?', '#'])
        && !rest.contains("..")
        && !rest.to_ascii_lowercase().contains("%2e")
        && url.len() <= ADDRESS_MAX
        && url.chars().all(plain);
    (matches!(scheme, "http" | "https") && is_safe).then_some((scheme, rest))
}

/// Whether a text can be the receiver of a mail, and nothing else to the command that sends it.
fn is_mail(text: &str) -> bool {
    let fits = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['-', '.'])
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c))
    };
    let parts: Vec<&str> = text.split('@').collect();
    parts.len() <= 2 && text.len() <= 254 && parts.into_iter().all(fits)
}

/// One thing to be sent.
struct Message {
    to: To,
    job: u32,
    body: Arc<str>,
    subject: String,
    tries: usize,
    due: Instant,
}

enum To {
    Url(String),
    Mail(String),
}

/// Sends messages from a thread of its own; it ends when this is dropped.
#[derive(Clone)]
pub struct Notifier {
    rules: Arc<NotifyRules>,
    notices: SyncSender<Notice>,
}

impl Notifier {
    /// Starts the thread.
    pub fn start(rules: Arc<NotifyRules>) -> std::io::Result<Notifier> {
        let (notices, taken) = sync_channel(WAITING_MAX);
        let own = Arc::clone(&rules);
        thread::Builder::new().name("notify".to_owned()).spawn(move || work(&own, &taken))?;
        Ok(Notifier { rules, notices })
    }

    /// Has an end told, if a rule or the job asks for it. Never waits.
    pub fn tell(&self, notice: Notice) {
        if !self.rules.wants(&notice.notify, notice.end) {
            return;
        }
        let job = notice.job;
        if let Err(TrySendError::Full(_)) = self.notices.try_send(notice) {
            tracing::warn!(target: "trainyard::notify", job, "too many messages wait: it is not told");
        }
    }
}

fn work(rules: &NotifyRules, taken: &Receiver<Notice>) {
    let agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(TRY_MAX))
        .user_agent(format!("trainyard/{}", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent();
    let mut waiting: VecDeque<Message> = VecDeque::new();
    loop {
        let next = waiting.iter().map(|message| message.due).min();
        let wait = next
            .map_or(Duration::from_secs(3600), |due| due.saturating_duration_since(Instant::now()));
        match taken.recv_timeout(wait) {
            Ok(notice) => waiting.extend(messages(rules, &notice)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if waiting.is_empty() => return,
            // The daemon ends: what was not sent is tried once more, without a pause.
            Err(RecvTimeoutError::Disconnected) => {
                for message in waiting.drain(..) {
                    let _ = send(rules, &agent, &message);
                }
                return;
            }
        }
        let now = Instant::now();
        for _ in 0..waiting.len() {
            let Some(mut message) = waiting.pop_front() else { break };
            if message.due > now {
                waiting.push_back(message);
                continue;
            }
            let Err(failure) = send(rules, &agent, &message) else { continue };
            match PAUSES.get(message.tries).filter(|_| failure.may_pass) {
                Some(pause) if waiting.len() < WAITING_MAX => {
                    (message.tries, message.due) = (message.tries + 1, Instant::now() + *pause);
                    waiting.push_back(message);
                }
                _ => tracing::warn!(
                    target: "trainyard::notify", job = message.job, to = shown(&message.to), why = failure.why,
                    "the end of a job could not be told"
                ),
            }
        }
    }
}

/// What is to be sent for one end.
fn messages(rules: &NotifyRules, notice: &Notice) -> Vec<Message> {
    let mut to: Vec<To> = rules.url.iter().cloned().map(To::Url).collect();
    if matches(notice.notify.on, notice.end) {
        let own = notice.notify.url.iter().filter(|url| rules.url.as_ref() != Some(*url));
        to.extend(own.cloned().map(To::Url));
        to.extend(notice.notify.mail.iter().cloned().map(To::Mail));
    }
    let body: Arc<str> = told(notice).to_string().into();
    let subject = format!("job {} ({}) {}", notice.job, notice.names[0], notice.end.name());
    let message = |to| Message {
        to,
        job: notice.job,
        body: Arc::clone(&body),
        subject: subject.clone(),
        tries: 0,
        due: Instant::now(),
    };
    to.into_iter().map(message).collect()
}

/// An end as JSON.
pub fn told(notice: &Notice) -> Value {
    let [name, user, tenant] = &notice.names;
    let [submitted, ended] = notice.times;
    json!({
        "schema_version": trainyard_api::SCHEMA_VERSION,
        "event": "job-ended",
        "job": notice.job,
        "name": name,
        "user": user,
        "tenant": tenant,
        "state": notice.end.name(),
        "why": notice.why,
        "submitted": submitted,
        "ended": ended,
        "attempts": notice.attempts,
        "exit_code": notice.exit_code,
    })
}

struct Unsent {
    why: String,
    /// Whether another try may do better.
    may_pass: bool,
}

fn send(rules: &NotifyRules, agent: &ureq::Agent, message: &Message) -> Result<(), Unsent> {
    match &message.to {
        To::Url(url) => {
            let request = agent.post(url).header("Content-Type", "application/json");
            let answer = request.send(&*message.body);
            let answer = answer.map_err(|e| Unsent { why: e.to_string(), may_pass: true })?;
            let status = answer.status();
            match status.is_success() {
                true => Ok(()),
                false => Err(Unsent {
                    why: format!("it answers with status {}", status.as_u16()),
                    may_pass: status.is_server_error() || status.as_u16() == 429,
                }),
            }
        }
        To::Mail(address) => {
            let failed = |why: String| Unsent { why, may_pass: true };
            mail(&rules.mail_command, address, message).map_err(failed)
        }
    }
}

/// Hands a mail to the operator's command.
fn mail(command: &[String], address: &str, message: &Message) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("no command is set")?;
    // After `--` no address can be a flag.
    let child = Command::new(program)
        .args(arguments)
        .args(["--", address])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| format!("{program}: {error}"))?;
    // The subject holds a name that a user chose: a line of its own would be a header.
    let text = format!(
        "To: {address}\nSubject: [trainyard] {}\nContent-Type: application/json; charset=utf-8\n\n{}\n",
        printable(&message.subject),
        message.body,
    );
    // It fits into the pipe, so that this does not wait for the command.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return written.map_err(|e| e.to_string()),
            Ok(Some(status)) => return Err(format!("{program} ends with {status}")),
            Ok(None) if begun.elapsed() < TRY_MAX => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{program} does not end within {} s", TRY_MAX.as_secs()));
            }
        }
    }
}

/// The receiver without what may be a secret: hooks have theirs in the path.
fn shown(to: &To) -> String {
    match to {
        To::Mail(address) => address.clone(),
        To::Url(url) => match split(url) {
            Some((scheme, rest)) => {
                format!("{scheme}://{}/...", rest.split('/').next().unwrap_or(""))
            }
            None => "an address".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> NotifyRules {
        NotifyRules {
            url: None,
            allowed: ["https://hooks.example", "http://127.0.0.1:9000/ada/"]
                .into_iter()
                .map(|text| NotifyRules::prefix(text).unwrap())
                .collect(),
            mail_command: vec!["/usr/sbin/sendmail".to_owned(), "-i".to_owned()],
            mail_domains: vec!["example.org".to_owned()],
        }
    }

    fn url(text: &str) -> Notify {
        Notify { url: Some(text.to_owned()), ..Notify::default() }
    }

    fn mailed(text: &str) -> Notify {
        Notify { mail: Some(text.to_owned()), ..Notify::default() }
    }

    #[test]
    fn a_job_has_only_addresses_told_that_the_operator_allows() {
        for text in
            ["https://hooks.example/a", "https://hooks.example/", "http://127.0.0.1:9000/ada/x?y=1"]
        {
            assert_eq!(rules().check(&url(text)), Ok(()), "{text}");
        }
        for text in [
            "https://hooks.example.evil/a",
            "https://hooks.example@evil/",
            "https://hooks.example:8443/",
            "http://hooks.example/a",
            "http://127.0.0.1:9000/bob/",
            "http://127.0.0.1:9000/ada/../bob",
            "http://127.0.0.1:9000/ada/%2E%2e/bob",
            "http://127.0.0.1:9000/ada/\r\nHost: x",
            "file:///etc/passwd",
            "",
        ] {
            let refused = rules().check(&url(text)).expect_err(text);
            assert_eq!(
                (refused.code, refused.field.as_deref()),
                (Code::Denied, Some("notify.url"))
            );
        }
        let none = NotifyRules::default().check(&url("https://hooks.example/a")).expect_err("none");
        assert!(none.detail.contains("--notify-allow"), "{}", none.detail);
    }

    #[test]
    fn mail_goes_to_local_users_and_allowed_domains_and_never_becomes_a_flag() {
        for text in ["ada", "ada.b+c@example.org"] {
            assert_eq!(rules().check(&mailed(text)), Ok(()), "{text}");
        }
        for text in
            ["ada@elsewhere.org", "-oQ/tmp", "a b", "ada@", "a@b@example.org", "ada\nBcc: x", "|sh"]
        {
            assert!(rules().check(&mailed(text)).is_err(), "{text}");
        }
        let off = NotifyRules { mail_command: Vec::new(), ..rules() };
        assert!(off.check(&mailed("ada")).expect_err("off").detail.contains("--mail-command"));
    }

    #[test]
    fn a_failure_is_any_end_but_a_finish() {
        let rules = rules();
        let on_failure = Notify { on: NotifyOn::Failure, ..mailed("ada") };
        assert!(!rules.wants(&on_failure, End::Finished));
        assert!(
            rules.wants(&on_failure, End::TimeLimit) && rules.wants(&mailed("ada"), End::Finished)
        );
        assert!(!rules.wants(&Notify::default(), End::Failed), "no recipient is named");
    }
}
