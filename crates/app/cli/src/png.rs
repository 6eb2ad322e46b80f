//! SVG to PNG, with a font of our own so that text looks the same on every machine.

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, Options, Tree};
use std::sync::Arc;

/// Latin, Greek and Cyrillic letters of Noto Sans; where it comes from is said beside it.
const FONT: &[u8] = include_bytes!("../data/font/NotoSans-subset.ttf");
const FAMILY: &str = "Noto Sans";
/// Pixels for each unit of the picture: sharp on screens of high density, and in print.
const SCALE: f32 = 2.0;

/// What turns pictures into pixels.
pub struct Paint {
    options: Options<'static>,
}

impl Paint {
    /// With the font, and no other.
    pub fn new() -> Paint {
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(FONT.to_vec());
        fonts.set_sans_serif_family(FAMILY);
        let fontdb = Arc::new(fonts);
        Paint { options: Options { fontdb, font_family: FAMILY.to_owned(), ..Options::default() } }
    }

    /// The picture as a PNG file.
    pub fn png(&self, svg: &str) -> Result<Vec<u8>, String> {
        let tree = Tree::from_str(svg, &self.options).map_err(|error| error.to_string())?;
        let size = tree.size().to_int_size().scale_by(SCALE).ok_or("it has no size")?;
        let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("it is too large")?;
        resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
        pixels.encode_png().map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many pixels of a picture are darker than its paper.
    fn dark(svg: &str) -> usize {
        let bytes = Paint::new().png(svg).expect("a picture");
        let pixels = Pixmap::decode_png(&bytes).expect("a PNG");
        pixels.pixels().iter().filter(|pixel| pixel.alpha() > 128 && pixel.red() < 128).count()
    }

    #[test]
    fn text_is_really_drawn() {
        let svg = |text: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100\" height=\"40\"><rect width=\"100\" height=\"40\" fill=\"white\"/>\
                 <text x=\"5\" y=\"25\" font-family=\"system-ui, sans-serif\" font-size=\"14\">{text}</text></svg>"
            )
        };
        assert_eq!(dark(&svg("")), 0);
        assert!(dark(&svg("≤12h ±ρ×")) > 100, "{}", dark(&svg("≤12h ±ρ×")));
        assert_ne!(dark(&svg("fifo")), dark(&svg("srtf")));
    }
}
