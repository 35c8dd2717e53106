//! How busy each link of a slice was: a map of the chips for each direction.

use std::path::Path;

use plotters::style::RGBColor;
use tpusim_isa::topology::Coord;
use tpusim_sim::network::{Cluster, Port};
use tpusim_sim::pod::PodProfile;

use super::palette::{BLACK, GREY};
use super::{Align, COLUMN, Figure, FigureError, TEXT};
use crate::units::percent;

const LEFT: f64 = 30.0;
const RIGHT: f64 = 8.0;
const HEAD: f64 = 42.0;
const GAP: f64 = 7.0;
/// Most of a chip's side, and least height of a map.
const CELL: f64 = 12.0;
const LEAST: f64 = 14.0;

/// Draws the share of the time that each link of the first slice was taken to `path` (`.svg` or `.png`), all slices as CSV beside it.
/// Ports that nothing crossed are left out.
pub fn links(path: &Path, cluster: &Cluster, profile: &PodProfile) -> Result<(), FigureError> {
    let time = profile.end.seconds();
    let used: Vec<Port> = Port::ALL
        .into_iter()
        .filter(|p| profile.ports.iter().any(|c| c.get(p.index()).is_some_and(|u| u.bytes > 0)))
        .collect();
    if used.is_empty() || time <= 0.0 {
        return Err(FigureError::Empty("nothing crossed a link"));
    }
    let share = |chip: usize, p: Port| {
        profile.ports.get(chip).and_then(|c| c.get(p.index())).map_or(0.0, |u| u.busy.seconds() / time)
    };
    let per_slice = cluster.slice.chips() as usize;
    let mut csv = String::from("slice,chip,x,y,z,port,busy_share,bytes\n");
    for chip in 0..profile.ports.len() {
        let [x, y, z] = coordinates(cluster.slice.dims(), chip % per_slice);
        for p in &used {
            let bytes = profile.ports.get(chip).and_then(|c| c.get(p.index())).map_or(0, |u| u.bytes);
            csv.push_str(&format!(
                "{},{},{x},{y},{z},{p},{},{bytes}\n",
                chip / per_slice,
                chip % per_slice,
                share(chip, *p)
            ));
        }
    }
    draw(cluster, &used, &share).write(path, csv.as_bytes())
}

fn coordinates([x, y, _]: Coord, chip: usize) -> [usize; 3] {
    let (x, y) = (x as usize, y as usize);
    [chip % x, chip / x % y, chip / (x * y)]
}

fn draw(cluster: &Cluster, used: &[Port], share: &dyn Fn(usize, Port) -> f64) -> Figure {
    let [nx, ny, nz] = cluster.slice.dims().map(|d| d as usize);
    // Planes of z side by side, a little apart.
    let gaps = (nz - 1) as f64 * 2.0;
    let cell = ((COLUMN - LEFT - RIGHT - gaps) / (nx * nz) as f64).min(CELL);
    let tall = cell.max(LEAST / ny as f64).min(CELL);
    let map = tall * ny as f64;
    let all = || used.iter().flat_map(|p| (0..nx * ny * nz).map(|c| share(c, *p)));
    let most = all().fold(0.0, f64::max).max(1e-9);
    let mut figure = Figure::new(COLUMN, HEAD + used.len() as f64 * (map + GAP) + TEXT + 6.0);
    let title = format!("time that links are taken, {} chips of a slice", nx * ny * nz);
    figure.text((LEFT, TEXT + 1.0), &title, Align::Left, GREY);
    scale(&mut figure, most);
    for (i, port) in used.iter().enumerate() {
        let top = HEAD + i as f64 * (map + GAP);
        figure.text((LEFT - 4.0, top + map / 2.0 + 0.36 * TEXT), &port.to_string(), Align::Right, BLACK);
        for z in 0..nz {
            let left = LEFT + z as f64 * (cell * nx as f64 + if nz > 1 { 2.0 } else { 0.0 });
            for y in 0..ny {
                let value = |x: usize| share(x + nx * (y + ny * z), *port);
                // Neighbours that are equal are one rectangle.
                let mut from = 0;
                while from < nx {
                    let to = (from + 1..nx).find(|x| value(*x) != value(from)).unwrap_or(nx);
                    let (a, b) = (left + from as f64 * cell, left + to as f64 * cell);
                    let (up, down) = (top + y as f64 * tall, top + (y + 1) as f64 * tall);
                    figure.area(vec![(a, up), (b, up), (b, down), (a, down)], shade(value(from) / most), 1.0);
                    from = to;
                }
            }
            let (a, b, down) = (left, left + cell * nx as f64, top + map);
            figure.line(vec![(a, top), (b, top), (b, down), (a, down), (a, top)], GREY, 0.3);
        }
    }
    let bottom = HEAD + used.len() as f64 * (map + GAP) + TEXT;
    let order = if nz > 1 { "columns x, rows y, a block for each z" } else { "columns x, rows y" };
    figure.text((LEFT, bottom), order, Align::Left, GREY);
    figure
}

/// The colours from nothing to `most`.
fn scale(figure: &mut Figure, most: f64) {
    const PARTS: usize = 40;
    let (top, bottom, width) = (TEXT + 8.0, TEXT + 15.0, 90.0);
    for i in 0..PARTS {
        let at = |i: usize| LEFT + 14.0 + width * i as f64 / PARTS as f64;
        let corners = vec![(at(i), top), (at(i + 1), top), (at(i + 1), bottom), (at(i), bottom)];
        figure.area(corners, shade((i as f64 + 0.5) / PARTS as f64), 1.0);
    }
    figure.text((LEFT + 10.0, bottom), "0", Align::Right, BLACK);
    figure.text((LEFT + 18.0 + width, bottom), &percent(most), Align::Left, BLACK);
}

/// From white over blue to nearly black, darker evenly.
fn shade(v: f64) -> RGBColor {
    const STOPS: [(f64, f64, f64); 4] =
        [(247.0, 251.0, 255.0), (158.0, 202.0, 225.0), (33.0, 113.0, 181.0), (8.0, 29.0, 88.0)];
    let at = v.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let i = (at as usize).min(STOPS.len() - 2);
    let f = at - i as f64;
    let (a, b) = (STOPS.get(i).copied().unwrap_or_default(), STOPS.get(i + 1).copied().unwrap_or_default());
    let mix = |a: f64, b: f64| (a + (b - a) * f).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}
