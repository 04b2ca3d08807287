//! Where tensors lie: address, dtype, shape and strides, proven to stay inside their allocation.
use std::ffi::c_void;
use std::marker::PhantomData;

use bitexact_sys as sys;

use crate::ViewError;

/// Most axes that a call takes.
const MAX_RANK: usize = 4;

mod sealed {
    pub trait Sealed {}
}

/// Which memory a view lies in: [`Host`] or [`Device`].
pub trait Memory: sealed::Sealed + 'static {}

/// Memory of this process. Calls are synchronous and safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {}

/// Memory of a CUDA device, reached in stream order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {}

impl sealed::Sealed for Host {}
impl sealed::Sealed for Device {}
impl Memory for Host {}
impl Memory for Device {}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE binary64; tables only.
    F64,
    /// Positions only.
    I32,
    /// Positions only.
    I64,
}

impl DType {
    /// Size of one element, in bytes.
    pub fn size(self) -> usize {
        match self {
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    pub(crate) fn code(self) -> i32 {
        match self {
            DType::F32 => sys::BITEXACT_DTYPE_FLOAT32,
            DType::F16 => sys::BITEXACT_DTYPE_FLOAT16,
            DType::Bf16 => sys::BITEXACT_DTYPE_BFLOAT16,
            DType::F64 => sys::BITEXACT_DTYPE_FLOAT64,
            DType::I32 => sys::BITEXACT_DTYPE_INT32,
            DType::I64 => sys::BITEXACT_DTYPE_INT64,
        }
    }

    pub(crate) fn from_code(code: i32) -> Option<DType> {
        [DType::F32, DType::F16, DType::Bf16, DType::F64, DType::I32, DType::I64]
            .into_iter()
            .find(|dtype| dtype.code() == code)
    }

    pub(crate) fn is_tensor(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::Bf16)
    }
}

/// The bits of a bfloat16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of an IEEE binary16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F16(pub u16);

/// Types that slices of tensors are made of.
///
/// # Safety
/// The type has the size, alignment and bits of [`Element::DTYPE`], and every bit pattern is a value.
pub unsafe trait Element: Copy {
    /// What the library calls it.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident),*) => {
        // SAFETY: plain numbers, or transparent around one, of the size that the dtype has.
        $(unsafe impl Element for $type { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(f32 => F32, F16 => F16, Bf16 => Bf16, f64 => F64, i32 => I32, i64 => I64);

/// Everything about a view but its lifetime and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub address: *mut c_void,
    pub dtype: DType,
    rank: usize,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

impl Layout {
    fn new(
        base: *mut c_void,
        len: usize,
        dtype: DType,
        offset: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Layout, ViewError> {
        let rank = shape.len();
        if rank != strides.len() || rank == 0 || rank > MAX_RANK {
            let accepted = "1 to 4, as many sizes as strides";
            return Err(ViewError::Rank { tensor: "the view", found: rank, accepted });
        }
        let bytes = dtype.size() as i128;
        let fits = |elements: i128| (elements * bytes).unsigned_abs() <= i64::MAX as u128;
        let (mut lowest, mut highest) = (offset as i128, offset as i128);
        let mut layout = Layout { address: base, dtype, rank, shape: [1; MAX_RANK], strides: [0; MAX_RANK] };
        for axis in 0..rank {
            let (size, stride) = (shape[axis] as i128, strides[axis] as i128);
            if !fits(size) || !fits(stride) || !fits(size * stride) {
                return Err(ViewError::TooLarge);
            }
            layout.shape[axis] = size as i64;
            layout.strides[axis] = stride as i64;
            let reach = (size - 1).max(0) * stride;
            lowest += reach.min(0);
            highest += reach.max(0);
        }
        if !fits(offset as i128) || !fits(highest) || !fits(lowest) {
            return Err(ViewError::TooLarge);
        }
        let empty = shape.contains(&0);
        if !empty && (lowest < 0 || highest >= len as i128) {
            return Err(ViewError::OutOfBounds { lowest, highest, len });
        }
        if !empty {
            layout.address = base.wrapping_byte_add(offset * dtype.size());
        }
        Ok(layout)
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Size of an axis.
    pub fn size(&self, axis: usize) -> i64 {
        self.shape[axis]
    }

    /// Stride of an axis; 0 where there is one element, so that it broadcasts.
    pub fn stride(&self, axis: usize) -> i64 {
        if self.shape[axis] == 1 {
            0
        } else {
            self.strides[axis]
        }
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.shape[..self.rank].iter().map(|&size| size as usize).collect()
    }

    /// The innermost axis must be contiguous; a single element always is.
    pub fn require_contiguous_end(&self, tensor: &'static str) -> Result<(), ViewError> {
        let last = self.rank - 1;
        if self.shape[last] <= 1 || self.strides[last] == 1 {
            return Ok(());
        }
        Err(ViewError::InnerStride { tensor, found: self.strides[last] })
    }

    fn transpose(mut self, a: usize, b: usize) -> Layout {
        assert!(a < self.rank && b < self.rank, "a view of {} axes has no axis {}", self.rank, a.max(b));
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    /// Does one element have two indices?
    fn overlaps_itself(&self) -> bool {
        let mut axes: Vec<(i128, i128)> = (0..self.rank)
            .filter(|&axis| self.shape[axis] > 1)
            .map(|axis| (self.strides[axis].unsigned_abs() as i128, self.shape[axis] as i128 - 1))
            .collect();
        axes.sort_by_key(|&(stride, _)| std::cmp::Reverse(stride));
        let empty = self.shape[..self.rank].contains(&0);
        !empty && reaches(&axes, 0, false, &mut 4096)
    }
}

/// Is there a whole-number step (v0, v1, ...), each within its axis, not all zero unless `moved`, whose
/// strides add up to `target`? The axes are sorted by falling stride, so that nested layouts leave one or
/// two candidates an axis; layouts too entangled for the budget count as overlapping.
fn reaches(axes: &[(i128, i128)], target: i128, moved: bool, budget: &mut u32) -> bool {
    let Some((&(stride, last), rest)) = axes.split_first() else { return moved && target == 0 };
    if stride == 0 {
        return true;
    }
    let slack: i128 = rest.iter().map(|(stride, last)| stride * last).sum();
    let from = (target - slack).div_euclid(stride).max(-last);
    let to = (target + slack).div_euclid(stride).min(last);
    for step in from..=to {
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        if reaches(rest, target - step * stride, moved || step != 0, budget) {
            return true;
        }
    }
    false
}

fn contiguous_strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1) as isize);
    }
    strides
}

/// A tensor that is read. Copies freely, like a shared reference.
///
/// The lifetime ties it to its memory:
/// ```compile_fail
/// use bitexact::{Host, View};
/// let view: View<'_, Host> = {
///     let values = vec![0.0f32; 4];
///     View::contiguous(&values, &[4]).unwrap()
/// };
/// let _ = view;
/// ```
#[derive(Debug)]
pub struct View<'a, M: Memory> {
    pub(crate) layout: Layout,
    borrow: PhantomData<(&'a [u8], M)>,
}

/// A tensor that is written: no element has two indices. Moves, like an exclusive reference.
///
/// ```compile_fail
/// use bitexact::ViewMut;
/// let mut values = vec![0.0f32; 4];
/// let first = ViewMut::contiguous(&mut values, &[4]).unwrap();
/// let second = ViewMut::contiguous(&mut values, &[4]).unwrap();
/// drop(first);
/// ```
#[derive(Debug)]
pub struct ViewMut<'a, M: Memory> {
    pub(crate) layout: Layout,
    borrow: PhantomData<(&'a mut [u8], M)>,
}

impl<M: Memory> Clone for View<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Memory> Copy for View<'_, M> {}

// SAFETY: a view is a borrow of plain numbers, shared or exclusive as its Rust counterpart; the address
// inside stands for that borrow.
unsafe impl<M: Memory> Send for View<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Memory> Sync for View<'_, M> {}
// SAFETY: as above.
unsafe impl<M: Memory> Send for ViewMut<'_, M> {}
// SAFETY: as above; nothing is written through a shared `ViewMut`.
unsafe impl<M: Memory> Sync for ViewMut<'_, M> {}

impl<'a, M: Memory> View<'a, M> {
    /// Describes memory by its address. `len` is the number of elements of the allocation from `base` on,
    /// `offset` that of the view's first element; sizes, strides and offset count elements.
    ///
    /// # Errors
    /// [`ViewError::Rank`], [`ViewError::OutOfBounds`], [`ViewError::TooLarge`].
    ///
    /// # Safety
    /// `base` points to `len` elements of `dtype` in memory of kind `M`, which live and are not written by
    /// others for `'a`; on a device also until every stream has passed the calls made of this view.
    pub unsafe fn from_raw(
        base: *const c_void,
        len: usize,
        dtype: DType,
        offset: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Self, ViewError> {
        let layout = Layout::new(base.cast_mut(), len, dtype, offset, shape, strides)?;
        Ok(View { layout, borrow: PhantomData })
    }

    /// The same memory with two axes exchanged: how a (batch, head, token, head_dim) tensor becomes the
    /// (batch, token, head, head_dim) that [`crate::Rope`] takes.
    ///
    /// # Panics
    /// If an axis does not exist.
    pub fn transpose(mut self, a: usize, b: usize) -> Self {
        self.layout = self.layout.transpose(a, b);
        self
    }

    /// Sizes of the axes, in elements.
    pub fn shape(&self) -> Vec<usize> {
        self.layout.sizes()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.layout.dtype
    }
}

impl<'a, M: Memory> ViewMut<'a, M> {
    /// As [`View::from_raw`], for memory that is written.
    ///
    /// # Errors
    /// As there, and [`ViewError::SelfOverlap`].
    ///
    /// # Safety
    /// As there, and nobody else reads or writes the elements of the view for `'a` or until the streams have
    /// passed.
    pub unsafe fn from_raw(
        base: *mut c_void,
        len: usize,
        dtype: DType,
        offset: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Self, ViewError> {
        let layout = Layout::new(base, len, dtype, offset, shape, strides)?;
        if layout.overlaps_itself() {
            return Err(ViewError::SelfOverlap);
        }
        Ok(ViewMut { layout, borrow: PhantomData })
    }

    /// As [`View::transpose`].
    ///
    /// # Panics
    /// If an axis does not exist.
    pub fn transpose(mut self, a: usize, b: usize) -> Self {
        self.layout = self.layout.transpose(a, b);
        self
    }

    /// Sizes of the axes, in elements.
    pub fn shape(&self) -> Vec<usize> {
        self.layout.sizes()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.layout.dtype
    }
}

impl<'a> View<'a, Host> {
    /// A strided view of a slice; `offset`, sizes and strides count elements.
    ///
    /// # Errors
    /// As [`View::from_raw`].
    pub fn strided<T: Element>(
        slice: &'a [T],
        offset: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Self, ViewError> {
        // SAFETY: the slice is borrowed for 'a and `Element` vouches for its type.
        unsafe { View::from_raw(slice.as_ptr().cast(), slice.len(), T::DTYPE, offset, shape, strides) }
    }

    /// The start of a slice as a row-major tensor.
    ///
    /// # Errors
    /// As [`View::from_raw`].
    pub fn contiguous<T: Element>(slice: &'a [T], shape: &[usize]) -> Result<Self, ViewError> {
        View::strided(slice, 0, shape, &contiguous_strides(shape))
    }
}

impl<'a> ViewMut<'a, Host> {
    /// As [`View::strided`].
    ///
    /// # Errors
    /// As [`ViewMut::from_raw`].
    pub fn strided<T: Element>(
        slice: &'a mut [T],
        offset: usize,
        shape: &[usize],
        strides: &[isize],
    ) -> Result<Self, ViewError> {
        // SAFETY: the slice is borrowed exclusively for 'a and `Element` vouches for its type.
        unsafe { ViewMut::from_raw(slice.as_mut_ptr().cast(), slice.len(), T::DTYPE, offset, shape, strides) }
    }

    /// As [`View::contiguous`].
    ///
    /// # Errors
    /// As [`ViewMut::from_raw`].
    pub fn contiguous<T: Element>(slice: &'a mut [T], shape: &[usize]) -> Result<Self, ViewError> {
        ViewMut::strided(slice, 0, shape, &contiguous_strides(shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SIZES: [usize; 4] = [0, 1, 2, 3];
    const STRIDES: [isize; 7] = [-5, -2, -1, 0, 1, 2, 6];

    /// Every element offset that a view visits, one by one.
    fn walk(offset: usize, shape: &[usize], strides: &[isize]) -> Vec<isize> {
        let mut offsets = vec![offset as isize];
        for (&size, &stride) in shape.iter().zip(strides) {
            offsets = (0..size as isize).flat_map(|i| offsets.iter().map(move |o| o + i * stride)).collect();
        }
        offsets
    }

    #[test]
    fn bounds_and_overlap_agree_with_a_walk_over_every_index() {
        let mut memory = [0.0f32; 24];
        let (mut refused, mut doubled, mut accepted) = (0, 0, 0);
        for (a, b, c) in
            SIZES.iter().flat_map(|a| SIZES.iter().flat_map(move |b| SIZES.iter().map(move |c| (*a, *b, *c))))
        {
            for (s, t, u) in STRIDES
                .iter()
                .flat_map(|s| STRIDES.iter().flat_map(move |t| STRIDES.iter().map(move |u| (*s, *t, *u))))
            {
                for offset in [0, 7, 12, 23, 24] {
                    let (shape, strides) = ([a, b, c], [s, t, u]);
                    let visited = walk(offset, &shape, &strides);
                    let inside = visited.iter().all(|&o| (0..24).contains(&o));
                    let view = View::strided(&memory, offset, &shape, &strides);
                    assert_eq!(view.is_ok(), inside, "{offset} {shape:?} {strides:?}");
                    let distinct = visited.iter().collect::<HashSet<_>>().len() == visited.len();
                    let output = ViewMut::strided(&mut memory, offset, &shape, &strides);
                    assert_eq!(output.is_ok(), inside && distinct, "{offset} {shape:?} {strides:?}");
                    refused += usize::from(!inside);
                    doubled += usize::from(inside && !distinct);
                    accepted += usize::from(inside && distinct);
                }
            }
        }
        assert!(refused > 1000 && doubled > 1000 && accepted > 1000);
    }

    #[test]
    fn sizes_that_overflow_are_refused() {
        let memory = [0.0f64; 1];
        let big = isize::MAX;
        for (offset, shape, strides) in [
            (0, [usize::MAX, 2], [0, 0]),
            (0, [2, 2], [big, 0]),
            (0, [2, 2], [isize::MIN, 0]),
            (usize::MAX, [1, 1], [0, 0]),
            (0, [1 << 31, 1 << 31], [1 << 31, 1]),
        ] {
            let error = View::strided(&memory, offset, &shape, &strides).unwrap_err();
            assert_eq!(error, ViewError::TooLarge, "{offset} {shape:?} {strides:?}");
        }
        // Just inside 63 bits of bytes, so refused for the smaller reason.
        let error = View::strided(&memory, 0, &[2], &[(1 << 58) - 1]).unwrap_err();
        assert!(matches!(error, ViewError::OutOfBounds { .. }));
    }

    #[test]
    fn ranks_other_than_one_to_four_are_refused() {
        let memory = [0.0f32; 1];
        for rank in [0, 5] {
            let error = View::strided(&memory, 0, &vec![1; rank], &vec![1; rank]).unwrap_err();
            assert!(matches!(error, ViewError::Rank { .. }));
        }
        assert!(View::strided(&memory, 0, &[1, 1], &[1]).is_err());
    }

    #[test]
    fn entangled_strides_count_as_overlapping() {
        let mut memory = vec![0.0f32; 1 << 16];
        let output = ViewMut::strided(&mut memory, 0, &[120, 110, 2], &[211, 223, 9973]);
        assert_eq!(output.unwrap_err(), ViewError::SelfOverlap);
    }

    #[test]
    fn the_address_is_that_of_the_first_element() {
        let memory = [0.0f32; 10];
        let view = View::strided(&memory, 9, &[10], &[-1]).unwrap();
        assert_eq!(view.layout.address.cast_const().cast(), &raw const memory[9]);
    }
}
