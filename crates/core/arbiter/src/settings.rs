//! The window over which use is counted, and the bounds of quotas.

use trainyard_types::Span;

/// The figures of the rules. The defaults are those of Gemini's scheduler.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Use is what was held within this time before now.
    pub window: Span,
    /// The first quota of a client.
    pub quota_base: Span,
    /// No quota is shorter.
    pub quota_min: Span,
    /// No quota is longer; `None` is as published: the limit's part of the window.
    pub quota_max: Option<Span>,
    /// A burst counts for the estimate of the next quota for this long.
    pub burst_memory: Span,
    /// A client that asks again this soon was cut off by its quota: its burst goes on.
    pub idle_min: Span,
    /// A token that is not back this long after its quota is revoked. Ours: Gemini waits.
    pub grace: Span,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            window: Span::secs(10),
            quota_base: Span(250_000),
            quota_min: Span(100_000),
            quota_max: None,
            burst_memory: Span::secs(3),
            idle_min: Span(2_000),
            grace: Span::secs(5),
        }
    }
}

/// Settings that cannot work together.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The window is too short or too long to count in.
    #[error("a window of {} us: expected 1 ms to one day", .0.0)]
    Window(Span),
    /// The bounds of quotas are not in order.
    #[error("quotas need 0 < least ({} us) <= base ({} us) <= greatest <= window", .least.0, .base.0)]
    Quotas {
        /// `quota_min`.
        least: Span,
        /// `quota_base`.
        base: Span,
    },
}

impl Settings {
    /// Itself, if it can work.
    pub fn checked(self) -> Result<Settings, SettingsError> {
        if self.window < Span(1_000) || self.window > Span::secs(86_400) {
            return Err(SettingsError::Window(self.window));
        }
        let greatest = self.quota_max.unwrap_or(self.window);
        let order = [self.quota_min, self.quota_base, greatest, self.window];
        if self.quota_min == Span::ZERO || !order.is_sorted() {
            return Err(SettingsError::Quotas { least: self.quota_min, base: self.quota_base });
        }
        Ok(self)
    }

    /// So many permille of the window.
    pub(crate) fn part(&self, permille: u32) -> Span {
        // A window is at most a day, so this is far from overflow.
        Span(self.window.0 * u64::from(permille) / u64::from(crate::share::WHOLE))
    }

    /// The longest quota under that limit.
    pub fn quota_max(&self, limit: u32) -> Span {
        let published = self.part(limit);
        self.quota_max.map_or(published, |own| own.min(published)).max(self.quota_min)
    }
}
