//! Where the devices of a program are in the network, as far as a compiler wants to know: coordinates along its axes.
//!
//! A program is compiled for positions of a mesh. Which device plays which position is decided before, and a collective can then use
//! all axes that the devices of a group extend along at once.

/// What joins the devices along an axis of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// The wires between the dies of a chip.
    Die,
    /// The links of the torus.
    Torus,
    /// The data center network between slices.
    Slices,
}

/// An axis of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NetworkAxis {
    /// Places along it.
    pub length: u32,
    /// What joins them.
    pub level: Level,
    /// Whether the last is next to the first.
    pub closed: bool,
}

impl NetworkAxis {
    /// Links between two places.
    pub fn distance(&self, a: u32, b: u32) -> u32 {
        let straight = a.abs_diff(b);
        match self.level {
            Level::Torus if self.closed => straight.min(self.length.saturating_sub(straight)),
            Level::Torus => straight,
            Level::Die | Level::Slices => straight.min(1),
        }
    }
}

/// Coordinates of the devices of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The axes.
    pub axes: Vec<NetworkAxis>,
    /// One coordinate for each axis, by position of the mesh.
    pub at: Vec<Vec<u32>>,
}
