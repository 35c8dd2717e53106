//! Figures for papers: one column wide, text of 8 points, colours that colour-blind readers tell apart, real units, and the numbers
//! as CSV beside each.
//!
//! [`Figure`] collects marks in points and draws them with plotters. plotters rounds to whole pixels, in SVG too, so everything is
//! drawn at ten times its size: an SVG keeps that as its `viewBox`, a PNG is averaged down. Text is placed by its baseline, since the
//! two backends disagree about every other anchor.

mod axes;
mod correlation;
mod links;
mod pod;
mod roofline;
mod scaling;
mod utilization;

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, ShapeStyle, WHITE};

use crate::atomic::{self, WriteError};

pub use correlation::{Correlation, correlation};
pub use links::links;
pub use pod::pod;
pub use roofline::roofline;
pub use scaling::{ScalePoint, scaling};
pub use utilization::utilization;

/// The width of a column of a two-column paper, 3.33 inches, in points.
pub const COLUMN: f64 = 240.0;
/// Size of all text, in points.
pub const TEXT: f64 = 8.0;
/// Plotters' pixels per point.
const SCALE: f64 = 10.0;
/// Plotters' pixels per pixel of a PNG, each way: 360 pixels per inch remain.
const SHRINK: usize = 2;

const FONT: &str = "DejaVu Sans";
static FONT_FILE: &[u8] = include_bytes!("../../assets/DejaVuSans.ttf");
/// plotters' font size over the em size, as the bitmap backend takes it (ascent plus descent of the font)...
const BITMAP_EM: f64 = 1.164;
/// ... and as the SVG backend does.
const SVG_EM: f64 = 1.24;

/// The palette of Okabe and Ito.
pub mod palette {
    use plotters::style::RGBColor;

    /// Axes and text.
    pub const BLACK: RGBColor = RGBColor(0, 0, 0);
    /// Grid lines and notes; not one of the palette's eight.
    pub const GREY: RGBColor = RGBColor(120, 120, 120);
    /// Orange.
    pub const ORANGE: RGBColor = RGBColor(0xE6, 0x9F, 0x00);
    /// Sky blue.
    pub const SKY: RGBColor = RGBColor(0x56, 0xB4, 0xE9);
    /// Bluish green.
    pub const GREEN: RGBColor = RGBColor(0x00, 0x9E, 0x73);
    /// Blue.
    pub const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xB2);
    /// Vermillion.
    pub const VERMILLION: RGBColor = RGBColor(0xD5, 0x5E, 0x00);
    /// Reddish purple.
    pub const PURPLE: RGBColor = RGBColor(0xCC, 0x79, 0xA7);
}

/// A figure could not be made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// The name does not say which format.
    #[error("`{0}`: figures are .svg or .png")]
    Extension(String),
    /// There is nothing to draw.
    #[error("nothing to draw: {0}")]
    Empty(&'static str),
    /// Drawing failed.
    #[error("cannot draw: {0}")]
    Draw(String),
    /// Writing failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Which end of a text is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The text starts there.
    Left,
    /// The text is centred there.
    Center,
    /// The text ends there.
    Right,
}

#[derive(Clone, Debug)]
enum Mark {
    Line { points: Vec<(f64, f64)>, color: RGBColor, width: f64 },
    Area { points: Vec<(f64, f64)>, color: RGBColor, alpha: f64 },
    Dot { center: (f64, f64), radius: f64, color: RGBColor },
    Text { at: (f64, f64), text: String, align: Align, color: RGBColor, upright: bool },
}

/// A drawing in points, the origin at the top left.
#[derive(Clone, Debug)]
pub struct Figure {
    width: f64,
    height: f64,
    marks: Vec<Mark>,
}

impl Figure {
    /// An empty figure.
    pub fn new(width: f64, height: f64) -> Figure {
        Figure { width, height, marks: Vec::new() }
    }

    /// A line through `points`.
    pub fn line(&mut self, points: Vec<(f64, f64)>, color: RGBColor, width: f64) {
        self.marks.push(Mark::Line { points, color, width });
    }

    /// A dashed line between two points.
    pub fn dashed(&mut self, from: (f64, f64), to: (f64, f64), color: RGBColor, width: f64) {
        const DASH: f64 = 3.0;
        const GAP: f64 = 2.0;
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let at = |s: f64| {
            let f = (s / length).min(1.0);
            (from.0 + (to.0 - from.0) * f, from.1 + (to.1 - from.1) * f)
        };
        // Nothing of a figure is longer than this many dashes.
        for i in 0..10_000 {
            let s = f64::from(i) * (DASH + GAP);
            if s.is_nan() || s >= length {
                break;
            }
            self.line(vec![at(s), at(s + DASH)], color, width);
        }
    }

    /// A filled polygon.
    pub fn area(&mut self, points: Vec<(f64, f64)>, color: RGBColor, alpha: f64) {
        self.marks.push(Mark::Area { points, color, alpha });
    }

    /// A filled circle with a thin white edge, so that overlapping ones stay apart.
    pub fn dot(&mut self, center: (f64, f64), radius: f64, color: RGBColor) {
        self.marks.push(Mark::Dot { center, radius: radius + 0.5, color: WHITE });
        self.marks.push(Mark::Dot { center, radius, color });
    }

    /// A text with its baseline at `at`.
    pub fn text(&mut self, at: (f64, f64), text: &str, align: Align, color: RGBColor) {
        self.marks.push(Mark::Text { at, text: text.to_owned(), align, color, upright: false });
    }

    /// A text that reads upwards, centred, with its baseline at `at`.
    pub fn upright(&mut self, at: (f64, f64), text: &str, color: RGBColor) {
        self.marks.push(Mark::Text { at, text: text.to_owned(), align: Align::Center, color, upright: true });
    }

    /// Width of a text in points.
    pub fn text_width(text: &str) -> f64 {
        if !font_is_registered() {
            return 0.6 * TEXT * text.chars().count() as f64;
        }
        let font = FontDesc::new(FontFamily::Name(FONT), TEXT * SCALE * BITMAP_EM, FontStyle::Normal);
        font.box_size(text).map_or(0.0, |(w, _)| f64::from(w) / SCALE)
    }

    /// Writes the figure to `path`, as SVG or PNG by its extension, and `csv` beside it under the same stem.
    pub fn write(&self, path: &Path, csv: &[u8]) -> Result<(), FigureError> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        let bytes = match extension.as_str() {
            "svg" => self.svg()?.into_bytes(),
            "png" => self.png()?,
            _ => return Err(FigureError::Extension(path.display().to_string())),
        };
        atomic::write_bytes(path, &bytes)?;
        atomic::write_bytes(&path.with_extension("csv"), csv)?;
        Ok(())
    }

    fn pixels(&self) -> (u32, u32) {
        // Even, so that a PNG's pixels come out whole.
        let size = |points: f64| ((points * SCALE / SHRINK as f64).round() as u32).max(1) * SHRINK as u32;
        (size(self.width), size(self.height))
    }

    /// The figure as SVG text.
    pub fn svg(&self) -> Result<String, FigureError> {
        let (w, h) = self.pixels();
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, (w, h)).into_drawing_area(), SVG_EM, 0.0)?;
        let big = format!("width=\"{w}\" height=\"{h}\"");
        let real = format!("width=\"{}pt\" height=\"{}pt\"", f64::from(w) / SCALE, f64::from(h) / SCALE);
        let family = format!("font-family=\"{FONT}\"");
        let families = format!("font-family=\"{FONT}, Verdana, sans-serif\"");
        Ok(text.replacen(&big, &real, 1).replace(" dy=\"-0.5ex\"", "").replace(&family, &families))
    }

    /// The figure as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, FigureError> {
        let (w, h) = self.pixels();
        let mut large = vec![0; w as usize * h as usize * 3];
        // The bitmap backend puts the baseline half a font size below a text's top.
        let shift = TEXT * BITMAP_EM / 2.0;
        self.draw(&BitMapBackend::with_buffer(&mut large, (w, h)).into_drawing_area(), BITMAP_EM, shift)?;
        let small = average(&large, w as usize);
        encode_png(&small, w / SHRINK as u32, h / SHRINK as u32).map_err(|e| FigureError::Draw(e.to_string()))
    }

    /// Draws all marks. `em` is plotters' font size over the em, `shift` how far above the baseline texts are anchored.
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>, em: f64, shift: f64) -> Result<(), FigureError> {
        if !font_is_registered() {
            return Err(FigureError::Draw("the bundled font does not load".to_owned()));
        }
        let fail = |e: &dyn std::fmt::Display| FigureError::Draw(e.to_string());
        area.fill(&WHITE).map_err(|e| fail(&e))?;
        for mark in &self.marks {
            match mark {
                Mark::Line { points, color, width } => {
                    let style =
                        ShapeStyle { color: color.to_rgba(), filled: false, stroke_width: pixel(*width) as u32 };
                    area.draw(&PathElement::new(all(points), style))
                }
                Mark::Area { points, color, alpha } => {
                    area.draw(&Polygon::new(all(points), color.mix(*alpha).filled()))
                }
                Mark::Dot { center, radius, color } => {
                    area.draw(&Circle::new(at(*center), pixel(*radius), color.filled()))
                }
                Mark::Text { at: (x, y), text, align, color, upright } => {
                    let h = match align {
                        Align::Left => HPos::Left,
                        Align::Center => HPos::Center,
                        Align::Right => HPos::Right,
                    };
                    // The SVG backend's offset for Bottom is removed from the text; for the bitmap Top is the plain case.
                    let v = if shift == 0.0 { VPos::Bottom } else { VPos::Top };
                    let turn = if *upright { FontTransform::Rotate270 } else { FontTransform::None };
                    let font =
                        FontDesc::new(FontFamily::Name(FONT), TEXT * SCALE * em, FontStyle::Normal).transform(turn);
                    let position = if *upright { (x - shift, *y) } else { (*x, y - shift) };
                    let style = plotters::style::TextStyle::from(font).color(color).pos(Pos::new(h, v));
                    area.draw(&Text::new(text.clone(), at(position), style))
                }
            }
            .map_err(|e| fail(&e))?;
        }
        area.present().map_err(|e| fail(&e))
    }
}

fn pixel(points: f64) -> i32 {
    (points * SCALE).round() as i32
}

fn at(p: (f64, f64)) -> (i32, i32) {
    (pixel(p.0), pixel(p.1))
}

fn all(points: &[(f64, f64)]) -> Vec<(i32, i32)> {
    points.iter().map(|p| at(*p)).collect()
}

/// Whether the bundled font could be registered; done once.
fn font_is_registered() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| plotters::style::register_font(FONT, FontStyle::Normal, FONT_FILE).is_ok())
}

/// Every [`SHRINK`] x [`SHRINK`] pixels of an RGB image as one.
fn average(large: &[u8], width: usize) -> Vec<u8> {
    let mut small = Vec::with_capacity(large.len() / (SHRINK * SHRINK));
    for rows in large.chunks_exact(width * 3 * SHRINK) {
        for x in (0..width * 3).step_by(3 * SHRINK) {
            for channel in 0..3 {
                let sample = |i: usize| (i % SHRINK) * 3 + (i / SHRINK) * width * 3 + x + channel;
                let sum: u32 = (0..SHRINK * SHRINK).map(|i| rows.get(sample(i)).map_or(0, |v| u32::from(*v))).sum();
                small.push((sum / (SHRINK * SHRINK) as u32) as u8);
            }
        }
    }
    small
}

fn encode_png(rgb: &[u8], width: u32, height: u32) -> Result<Vec<u8>, io::Error> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let per_meter = (SCALE / SHRINK as f64 * 72.0 / 0.0254).round() as u32;
    encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: per_meter, yppu: per_meter, unit: png::Unit::Meter }));
    encoder.write_header()?.write_image_data(rgb)?;
    Ok(bytes)
}
