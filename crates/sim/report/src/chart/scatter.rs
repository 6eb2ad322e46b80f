//! Runs as dots: completion time to the right, another measure upwards.

use super::{BOTTOM, Caption, HEIGHT, LEFT, RIGHT, TOP, WIDTH};
use super::{escape, horizontal, open, style, vertical};
use crate::units::{Unit, span_text};
use std::fmt::Write;

/// One run of a scatter plot.
pub(crate) struct Point<'a> {
    /// The number of the run, which gives its colour.
    pub run: usize,
    /// Its name.
    pub name: &'a str,
    /// Its completion time in seconds.
    pub seconds: f64,
    /// The other measure.
    pub value: f64,
}

/// More dots than this carry no names, which would only cover each other.
const NAMED_MAX: usize = 16;

/// Moments that people know, closer together than those of a wide axis.
const MOMENTS: [f64; 27] = [
    0.001,
    0.01,
    0.1,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    1200.0,
    1800.0,
    3600.0,
    7200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    1_209_600.0,
    2_592_000.0,
    7_776_000.0,
    31_104_000.0,
];

/// A round length of time without a second unit.
fn short(seconds: f64) -> String {
    let text = span_text(seconds);
    let cut = ["00h", "00m", "00s"].iter().find_map(|zero| text.strip_suffix(zero));
    cut.map_or(text.clone(), str::to_owned)
}

/// A round count that fits beside an axis: `10k`.
fn thousands(count: f64) -> String {
    match count {
        1e6.. => format!("{}M", count / 1e6),
        1e3.. => format!("{}k", count / 1e3),
        _ => count.to_string(),
    }
}

/// The room that a name needs upwards.
const NAME_HEIGHT: f64 = 12.0;

/// Runs by completion time and another measure, which is an index or a count.
pub(crate) fn scatter(caption: &Caption<'_>, points: &[Point<'_>], unit: Unit) -> String {
    let seconds = || points.iter().map(|point| point.seconds);
    let least = seconds().fold(f64::INFINITY, f64::min).min(1e12);
    // Some room on both sides, more on the right, where names stand.
    let (low, high) = (least.max(0.001) / 1.3, seconds().fold(0.001, f64::max) * 2.0);
    let (from, to) = (libm::log10(low), libm::log10(high));
    let x = |seconds: f64| {
        let part = (libm::log10(seconds.max(low)) - from) / (to - from);
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    let axis = Upright::new(points, unit);
    let y = |value: f64| TOP + 6.0 + (1.0 - axis.part(value)) * (HEIGHT - TOP - BOTTOM - 6.0);
    let mut svg = open(caption, (WIDTH, HEIGHT));
    for (value, text) in axis.marks() {
        horizontal(&mut svg, (LEFT, WIDTH - RIGHT), y(value), &text);
    }
    let within: Vec<f64> = MOMENTS.iter().copied().filter(|at| (low..=high).contains(at)).collect();
    for at in within.iter().step_by(within.len().div_ceil(7).max(1)) {
        vertical(&mut svg, x(*at), (TOP, HEIGHT - BOTTOM), &short(*at));
    }
    let mut names = Names::default();
    for point in points {
        let (right, down) = (x(point.seconds), y(point.value));
        names.taken.push((right - 6.0, right + 6.0, down));
    }
    for point in points {
        let (class, name) = (style(point.run), escape(point.name));
        let at = (x(point.seconds), y(point.value));
        let _ = write!(
            svg,
            "<g data-run=\"{}\"><circle class=\"dot {class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\"><title>{name}: JCT {}, {}</title></circle>",
            point.run,
            at.0,
            at.1,
            span_text(point.seconds),
            unit.text(point.value)
        );
        if points.len() <= NAMED_MAX {
            names.write(&mut svg, at, point.name);
        }
        svg.push_str("</g>");
    }
    svg + "</svg>"
}

/// The upright axis.
struct Upright {
    /// Counts grow by powers of ten, and 0 has a place of its own.
    is_count: bool,
    low: f64,
    high: f64,
}

impl Upright {
    fn new(points: &[Point<'_>], unit: Unit) -> Upright {
        let values = || points.iter().map(|point| point.value);
        let most = values().fold(0.0, f64::max);
        let least = values().fold(f64::INFINITY, f64::min).min(most);
        match unit {
            Unit::Count => Upright { is_count: true, low: 0.0, high: most.max(10.0) },
            _ if most <= 1.0 => {
                let low = libm::floor((least - 0.02).max(0.0) * 10.0) / 10.0;
                Upright { is_count: false, low, high: 1.0 }
            }
            _ => Upright { is_count: false, low: 0.0, high: libm::ceil(most) },
        }
    }

    fn part(&self, value: f64) -> f64 {
        let part = match self.is_count {
            true => libm::log10(1.0 + value) / libm::log10(1.0 + self.high),
            false => (value - self.low) / (self.high - self.low).max(1e-9),
        };
        part.clamp(0.0, 1.0)
    }

    fn marks(&self) -> Vec<(f64, String)> {
        if self.is_count {
            let powers = (0..9).map(|power| libm::exp10(f64::from(power)));
            let marks = std::iter::once(0.0).chain(powers.filter(|mark| *mark <= self.high));
            return marks.map(|mark| (mark, thousands(mark))).collect();
        }
        let step = (self.high - self.low) / 4.0;
        let digits = if step < 0.1 { 3 } else { 2 };
        let mark = |number: u32| {
            let at = self.low + f64::from(number) * step;
            (at, format!("{at:.digits$}"))
        };
        (0..=4).map(mark).collect()
    }
}

/// Names beside dots, each where no other stands.
#[derive(Default)]
struct Names {
    taken: Vec<(f64, f64, f64)>,
}

impl Names {
    fn write(&mut self, svg: &mut String, (x, y): (f64, f64), name: &str) {
        let short: String = name.chars().take(20).collect();
        let width = short.chars().count() as f64 * 6.2;
        let is_left = x + 9.0 + width > WIDTH;
        let (from, anchor) = if is_left { (x - 9.0 - width, "end") } else { (x + 9.0, "start") };
        let overlaps = |at: f64, taken: &[(f64, f64, f64)]| {
            let one = |(begin, end, height): &(f64, f64, f64)| {
                from < *end && from + width > *begin && (at - height).abs() < NAME_HEIGHT
            };
            taken.iter().any(one)
        };
        // The nearest free height, downwards and upwards in turn.
        let tries = (0..24).map(|number| {
            let away = f64::from((number + 1) / 2) * NAME_HEIGHT;
            if number % 2 == 0 { y - away } else { y + away }
        });
        let fits = |at: &f64| (TOP + 4.0..HEIGHT - BOTTOM + 4.0).contains(at);
        let free = tries.filter(fits).find(|at| !overlaps(*at, &self.taken)).unwrap_or(y);
        self.taken.push((from, from + width, free));
        let at = if is_left { x - 9.0 } else { x + 9.0 };
        let _ = write!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            free + 4.0,
            escape(&short)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(run: usize, name: &str, seconds: f64, value: f64) -> Point<'_> {
        Point { run, name, seconds, value }
    }

    #[test]
    fn names_of_dots_at_one_place_do_not_cover_each_other() {
        let points = [point(0, "a", 60.0, 0.5), point(1, "b", 60.0, 0.5)];
        let caption = Caption { id: "x", title: "t", description: "d" };
        let svg = scatter(&caption, &points, Unit::Index);
        let height = |name: &str| {
            let (before, _) = svg.split_once(&format!(">{name}</text>")).expect("a name");
            let (_, y) = before.rsplit_once("y=\"").expect("a height");
            y.split('"').next().expect("a number").parse::<f64>().expect("a number")
        };
        assert!((height("a") - height("b")).abs() >= NAME_HEIGHT, "{svg}");
    }

    #[test]
    fn none_and_many_have_places_of_their_own_on_an_axis_of_counts() {
        let points = [point(0, "a", 60.0, 0.0), point(1, "b", 60.0, 90_000.0)];
        let axis = Upright::new(&points, Unit::Count);
        assert_eq!((axis.part(0.0), axis.part(90_000.0)), (0.0, 1.0));
        let marks: Vec<String> = axis.marks().into_iter().map(|mark| mark.1).collect();
        assert_eq!(marks, ["0", "1", "10", "100", "1k", "10k"]);
    }
}
