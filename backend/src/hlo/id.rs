//! Typed indices and the vectors they index.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl From<usize> for $name {
            fn from(i: usize) -> Self { $name(i as u32) }
        }

        impl From<$name> for usize {
            fn from(i: $name) -> usize { i.0 as usize }
        }
    )*};
}

id! {
    /// A value of one function.
    ValueId;
    /// A source location in a module's [`super::LocTable`].
    LocId;
}

/// A vector indexed by an id type. Nothing is ever removed from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    _id: PhantomData<I>,
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        IdVec { items: Vec::new(), _id: PhantomData }
    }
}

impl<I: From<usize> + Copy, T> IdVec<I, T> {
    /// Appends `item` and returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::from(self.items.len() - 1)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Items with their ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(i, t)| (I::from(i), t))
    }
}

impl<I: Into<usize>, T> Index<I> for IdVec<I, T> {
    type Output = T;
    fn index(&self, i: I) -> &T {
        &self.items[i.into()]
    }
}

impl<I: Into<usize>, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, i: I) -> &mut T {
        &mut self.items[i.into()]
    }
}
