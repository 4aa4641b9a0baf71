//! Memory whose place is asked for, and then checked: reserve, bind, touch, verify.

pub mod chain;

use crate::error::{Error, Result};
use crate::units::{Bytes, NodeId, NodeSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

/// One cache line's worth of memory. Slices of lines are aligned and whole by type, so a kernel can have no odd tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Line(pub [u8; 64]);

impl Line {
    /// Its size.
    pub const BYTES: u64 = 64;

    /// The line that holds these eight words in the machine's byte order.
    #[inline]
    pub fn from_words(words: [u64; 8]) -> Line {
        let mut line = Line([0; 64]);
        for (bytes, word) in line.0.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_ne_bytes();
        }
        line
    }

    /// Its eight words in the machine's byte order.
    #[inline]
    pub fn words(&self) -> [u64; 8] {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(self.0.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        words
    }

    /// The bytes of these lines, in order.
    pub fn bytes(lines: &[Line]) -> &[u8] {
        // SAFETY: a line is 64 bytes without padding, each of them initialised, and any address will do for a byte.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
    }

    /// The bytes of these lines, in order, for writing.
    pub fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
        // SAFETY: as in `bytes`; every pattern is a valid line, and the lines are borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
    }
}

/// The page size to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pages {
    /// Whatever the system gives an ordinary allocation.
    Default,
    /// 4 KiB: huge pages declined (MADV_NOHUGEPAGE).
    #[serde(rename = "4k")]
    Small,
    /// Transparent huge pages asked for (MADV_HUGEPAGE).
    Thp,
    /// 2 MiB pages of the hugetlb pool.
    #[serde(rename = "2m")]
    Huge2M,
}

/// Where pages shall lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// On the node of the thread that touches a page first.
    FirstTouch,
    /// Only on these nodes.
    Bind(NodeSet),
    /// Page by page round these nodes.
    Interleave(NodeSet),
}

impl Pages {
    /// Its name on the command line and in records.
    pub fn name(self) -> &'static str {
        match self {
            Pages::Default => "default",
            Pages::Small => "4k",
            Pages::Thp => "thp",
            Pages::Huge2M => "2m",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::FirstTouch => f.write_str("first touch"),
            Policy::Bind(nodes) => write!(f, "on node {nodes}"),
            Policy::Interleave(nodes) => write!(f, "interleaved over nodes {nodes}"),
        }
    }
}

/// Where sampled pages were seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagesByNode {
    /// Pages on each node.
    pub pages: BTreeMap<NodeId, u64>,
    /// Pages whose place the system did not tell.
    pub unknown: u64,
}

impl PagesByNode {
    /// Adds what was seen elsewhere.
    pub fn add(&mut self, other: &PagesByNode) {
        for (node, pages) in &other.pages {
            *self.pages.entry(*node).or_insert(0) += pages;
        }
        self.unknown += other.unknown;
    }

    /// Of the pages whose place is known, the share for which `right` holds; `None` when no place is known.
    pub fn share(&self, right: impl Fn(NodeId) -> bool) -> Option<f64> {
        let known: u64 = self.pages.values().sum();
        let there: u64 = self.pages.iter().filter(|(node, _)| right(**node)).map(|(_, pages)| pages).sum();
        (known > 0).then(|| there as f64 / known as f64)
    }
}

/// The huge page of x86-64, and of aarch64 with 4 KiB base pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What an ordinary page is taken for where the system does not say: the smallest of any Linux.
const FALLBACK_PAGE_BYTES: usize = 4096;

/// An anonymous private mapping, zero until touched.
///
/// Except with [`Pages::Huge2M`] it lies between two inaccessible pages. One byte too far faults at once, and the
/// kernel cannot merge it with a neighbour, so that its line in smaps speaks of this buffer alone.
#[derive(Debug)]
pub struct Buffer {
    /// What was mapped and is unmapped when dropped, inaccessible pages included.
    _mapping: Mapping,
    /// The first usable byte, inside the mapping.
    start: NonNull<u8>,
    /// Usable bytes: whole pages.
    bytes: usize,
}

// SAFETY: the buffer owns its mapping alone (`Buffer::reserve` hands the addresses to nobody else), memory maps belong
// to the process and not to a thread, and access goes through `&self` and `&mut self`.
unsafe impl Send for Buffer {}
// SAFETY: as above; what `&self` allows is reading plain bytes and system calls that leave them as they are.
unsafe impl Sync for Buffer {}

/// A range of addresses that is unmapped when dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn anonymous(bytes: usize, protection: libc::c_int, flags: libc::c_int) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: no address is asked for and MAP_FIXED is not among the flags (see `Buffer::reserve`), so the kernel
        // takes unused addresses and no existing object is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("the kernel mapped address 0"))?;
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `anonymous` mapped; its borrowers borrow the `Buffer` and are gone.
        // munmap fails only for ranges that are not page-aligned, which mmap rules out.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl Buffer {
    /// Maps at least `bytes` (rounded up to whole pages) without touching them.
    ///
    /// # Errors
    /// When the system refuses, or the hugetlb pool is too small.
    pub fn reserve(bytes: Bytes, pages: Pages) -> Result<Buffer> {
        let small = base_page_bytes();
        let (page_bytes, kind) = match pages {
            Pages::Default | Pages::Small => (small, "ordinary"),
            Pages::Thp => (HUGE_PAGE_BYTES.max(small), "transparent huge"),
            Pages::Huge2M => (HUGE_PAGE_BYTES, "2 MiB"),
        };
        let refused =
            |reason: String, advice: String| Error::refused(format!("map {bytes} in {kind} pages"), reason, advice);
        let smaller = || "ask for smaller arrays, or raise the limit (ulimit -v, vm.overcommit_memory)".to_owned();
        let too_large = || refused("that is more than there are addresses".to_owned(), smaller());
        let wanted = usize::try_from(bytes.0)
            .ok()
            .and_then(|bytes| bytes.max(1).checked_next_multiple_of(page_bytes))
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(too_large)?;

        if pages == Pages::Huge2M {
            // Without MAP_NORESERVE, so that a pool that is too small refuses here instead of killing the process at the
            // first touch.
            let flags = libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
            let mapping = Mapping::anonymous(wanted, libc::PROT_READ | libc::PROT_WRITE, flags).map_err(|error| {
                let count = wanted / HUGE_PAGE_BYTES;
                refused(error.to_string(), format!("reserve them with `sysctl vm.nr_hugepages={count}`"))
            })?;
            return Ok(Buffer { start: mapping.start, bytes: wanted, _mapping: mapping });
        }

        // Inaccessible at first, and large enough that an aligned range with a page on either side fits wherever it lands.
        let padded = wanted.checked_add(page_bytes + small).ok_or_else(too_large)?;
        let mapping = Mapping::anonymous(padded, libc::PROT_NONE, libc::MAP_NORESERVE)
            .map_err(|error| refused(error.to_string(), smaller()))?;
        let address = mapping.start.as_ptr().addr();
        let offset = (address + small).next_multiple_of(page_bytes) - address;
        // SAFETY: `offset` is at most page_bytes, so offset + wanted lies inside the `padded` bytes of the mapping.
        let start = unsafe { mapping.start.add(offset) };
        let buffer = Buffer { _mapping: mapping, start, bytes: wanted };
        // SAFETY: whole pages inside the mapping that `buffer` owns, which nobody else knows yet.
        let status = unsafe { libc::mprotect(start.as_ptr().cast(), wanted, libc::PROT_READ | libc::PROT_WRITE) };
        if status != 0 {
            return Err(refused(io::Error::last_os_error().to_string(), smaller()));
        }
        match pages {
            // A kernel built without transparent huge pages answers EINVAL, and there small pages are all that exists.
            Pages::Small => drop(buffer.advise(libc::MADV_NOHUGEPAGE)),
            Pages::Thp => buffer.advise(libc::MADV_HUGEPAGE).map_err(|error| {
                refused(
                    error.to_string(),
                    "ask for default pages; this kernel has no transparent huge pages".to_owned(),
                )
            })?,
            Pages::Default | Pages::Huge2M => {}
        }
        Ok(buffer)
    }

    /// Sets the policy of the whole mapping (mbind). Must come before the first touch.
    ///
    /// # Errors
    /// When the kernel refuses (a sandbox, a kernel without NUMA): the caller goes on with first touch and a caveat.
    pub fn bind(&self, policy: &Policy) -> Result<()> {
        let nobody = NodeSet::default();
        // "Preferred" without a node means the node of the thread that touches: it overrides `numactl --interleave`.
        let (mode, nodes) = match policy {
            Policy::FirstTouch => (libc::MPOL_PREFERRED, &nobody),
            Policy::Bind(nodes) => (libc::MPOL_BIND, nodes),
            Policy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
        };
        let mask = node_mask(nodes);
        // The kernel takes one bit less than it is told.
        let mask_bits = mask.len() * libc::c_ulong::BITS as usize + 1;
        // SAFETY: the range is this buffer's own and page-aligned, the mask holds `mask_bits - 1` bits, and without
        // MPOL_MF_MOVE the call changes where future pages come from and no byte of memory.
        let status = unsafe {
            libc::syscall(libc::SYS_mbind, self.start.as_ptr(), self.bytes, mode, mask.as_ptr(), mask_bits, 0)
        };
        // What cannot be said about first touch is mostly so already; `placement` finds out where it is not.
        if status == 0 || *policy == Policy::FirstTouch {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        let advice = match error.raw_os_error() {
            Some(libc::EINVAL) => "name nodes that exist, have memory and are allowed to this process",
            _ => "allow mbind in this sandbox (CAP_SYS_NICE), or use first touch",
        };
        Err(Error::refused(format!("place {} on memory nodes '{nodes}'", Bytes(self.bytes as u64)), error, advice))
    }

    /// On which nodes about `sample` evenly spread pages of `range` (in lines) lie now (move_pages without moving).
    /// Pages never touched count as unknown.
    ///
    /// # Errors
    /// When the kernel refuses move_pages.
    pub fn nodes(&self, range: Range<usize>, sample: usize) -> Result<PagesByNode> {
        let pages = self.sampled_pages(range, sample);
        // Stays where the kernel tells nothing: no node has a negative number.
        let mut nodes = vec![-libc::ENOENT; pages.len()];
        if !pages.is_empty() {
            // SAFETY: both arrays have `pages.len()` elements; without an array of target nodes the call only reports;
            // process 0 is this one. The addresses are looked up, not read.
            let status = unsafe {
                let nowhere = ptr::null::<libc::c_int>();
                libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), nowhere, nodes.as_mut_ptr(), 0)
            };
            if status < 0 {
                return Err(Error::refused(
                    "ask on which memory nodes pages lie",
                    io::Error::last_os_error(),
                    "allow move_pages in this sandbox (CAP_SYS_NICE), or take placement as unverified",
                ));
            }
        }
        let mut seen = PagesByNode::default();
        for node in nodes {
            match u32::try_from(node) {
                Ok(node) => *seen.pages.entry(NodeId(node)).or_insert(0) += 1,
                Err(_) => seen.unknown += 1,
            }
        }
        Ok(seen)
    }

    /// Share of the touched memory that lies in huge pages, 0 to 1, from smaps; `None` where that cannot be read or
    /// nothing was touched. Reads the whole of /proc/self/smaps.
    pub fn huge_share(&self) -> Option<f64> {
        let first = self.start.as_ptr().addr() as u64;
        let own = first..first + self.bytes as u64;
        let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
        smaps_of(&text, own)?.huge_share()
    }

    /// All of it, for reading.
    pub fn lines(&self) -> &[Line] {
        // SAFETY: `reserve` mapped `bytes` readable bytes from `start`, page-aligned and so line-aligned, zeroed by the
        // kernel; a `Line` is 64 bytes of which every pattern is valid; no `&mut` exists while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.line_count()) }
    }

    /// All of it, for writing.
    pub fn lines_mut(&mut self) -> &mut [Line] {
        // SAFETY: as in `lines`, writable too, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.line_count()) }
    }

    fn line_count(&self) -> usize {
        self.bytes / size_of::<Line>()
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: whole pages of this buffer's own mapping; the two advices in use (see `reserve`) keep contents.
        let status = unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, advice) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Addresses inside up to `sample` evenly spread base pages of a range of lines, ascending, no page twice.
    fn sampled_pages(&self, range: Range<usize>, sample: usize) -> Vec<*const u8> {
        let page = base_page_bytes();
        let last = range.end.min(self.line_count()) * size_of::<Line>();
        let first = (range.start * size_of::<Line>()).min(last) / page;
        let count = last.div_ceil(page) - first;
        let taken = sample.min(count);
        (0..taken)
            .map(|i| {
                let index = first + (i as u128 * count as u128 / taken as u128) as usize;
                self.start.as_ptr().cast_const().wrapping_add(index * page)
            })
            .collect()
    }
}

/// A mapping of its own that threads share word by word: a fresh page whose home is known.
#[derive(Debug)]
pub struct Words(Buffer);

impl Words {
    /// Maps at least `bytes`, zero and not touched: the first thread that writes decides where it lies.
    ///
    /// # Errors
    /// As [`Buffer::reserve`].
    pub fn reserve(bytes: Bytes) -> Result<Words> {
        Buffer::reserve(bytes, Pages::Default).map(Words)
    }

    /// As [`Buffer::bind`].
    ///
    /// # Errors
    /// As [`Buffer::bind`].
    pub fn bind(&self, policy: &Policy) -> Result<()> {
        self.0.bind(policy)
    }

    /// The node that its first page lies on; `None` before the first touch, or when the system does not tell.
    pub fn home(&self) -> Option<NodeId> {
        let lines = self.0.line_count().min(1);
        self.0.nodes(0..lines, 1).ok()?.pages.first_key_value().map(|(node, _)| *node)
    }
}

impl std::ops::Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let words = self.0.bytes / size_of::<AtomicU64>();
        // SAFETY: `Buffer::reserve` mapped that many writable bytes, page-aligned and zeroed, and every pattern is a valid
        // word. The buffer is private to this type, which never makes a `Line` reference of it, so all access is atomic.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr().cast(), words) }
    }
}

/// The size of an ordinary page.
pub fn base_page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the system and has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(FALLBACK_PAGE_BYTES)
}

/// A bit for each node, long enough for the highest; one empty word for no node.
fn node_mask(nodes: &NodeSet) -> Vec<libc::c_ulong> {
    let word_bits = libc::c_ulong::BITS as usize;
    let highest = nodes.iter().next_back().map_or(0, |node| node.0 as usize);
    let mut mask = vec![0; highest / word_bits + 1];
    for node in nodes.iter() {
        mask[node.0 as usize / word_bits] |= 1 << (node.0 as usize % word_bits);
    }
    mask
}

/// What smaps says of one range of addresses.
#[derive(Clone, Debug, PartialEq)]
struct Smaps {
    /// Bytes that have memory behind them; always 0 for the hugetlb pool.
    resident_bytes: u64,
    /// Of these, bytes in transparent huge pages.
    anon_huge_bytes: u64,
    /// The page size of the mapping's kind: the pool's for hugetlb, else the ordinary one.
    kernel_page_bytes: Bytes,
}

impl Smaps {
    fn huge_share(&self) -> Option<f64> {
        if self.kernel_page_bytes.0 >= HUGE_PAGE_BYTES as u64 {
            return Some(1.0);
        }
        (self.resident_bytes > 0).then(|| self.anon_huge_bytes as f64 / self.resident_bytes as f64)
    }
}

/// Sums up the mappings of an smaps `text` that overlap `range`; `None` when there is none with a page size.
fn smaps_of(text: &str, range: Range<u64>) -> Option<Smaps> {
    let mut sum = Smaps { resident_bytes: 0, anon_huge_bytes: 0, kernel_page_bytes: Bytes(0) };
    let mut inside = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(field) = first.strip_suffix(':') {
            let bytes = || words.next().and_then(|number| number.parse::<u64>().ok()).map(|kib| kib * 1024);
            match field {
                "Rss" if inside => sum.resident_bytes += { bytes }()?,
                "AnonHugePages" if inside => sum.anon_huge_bytes += { bytes }()?,
                "KernelPageSize" if inside => sum.kernel_page_bytes = sum.kernel_page_bytes.max(Bytes({ bytes }()?)),
                _ => {}
            }
        } else if let Some((start, end)) = first.split_once('-') {
            let hex = |digits| u64::from_str_radix(digits, 16).ok();
            inside = hex(start)? < range.end && range.start < hex(end)?;
        }
    }
    (sum.kernel_page_bytes > Bytes(0)).then_some(sum)
}

/// Fills `lines` with non-zero, varying words derived from `seed` and the position `first_line` of the slice in its
/// array, so that threads can fill their parts and the whole does not depend on how it was split.
///
/// As `f64` every word is in [1, 2): no operation of a kernel can overflow on it or meet a NaN or a subnormal number,
/// which some processors compute more slowly.
pub fn fill_words(lines: &mut [Line], first_line: u64, seed: u64) {
    for (position, line) in lines.iter_mut().enumerate() {
        let first_word = first_line.wrapping_add(position as u64).wrapping_mul(8);
        let mut words = [0; 8];
        for (position, word) in words.iter_mut().enumerate() {
            *word = (split_mix(seed, first_word.wrapping_add(position as u64)) >> 12) | 1.0f64.to_bits();
        }
        *line = Line::from_words(words);
    }
}

/// Output number `index` of the SplitMix64 generator that starts from `seed` (Steele, Lea, Flood: Fast splittable
/// pseudorandom number generators, OOPSLA 2014; constants of Vigna's splitmix64.c).
#[inline]
pub(crate) fn split_mix(seed: u64, index: u64) -> u64 {
    let state = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
        assert_eq!(Line::BYTES, 64);
        let words = [1, 2, 3, u64::MAX, 5, 6, 7, 8];
        assert_eq!(Line::from_words(words).words(), words);
        let mut lines = [Line([1; 64]), Line([2; 64])];
        Line::bytes_mut(&mut lines)[63] = 9;
        assert_eq!((Line::bytes(&lines).len(), &Line::bytes(&lines)[62..66]), (128, &[1, 9, 2, 2][..]));
    }

    #[test]
    fn a_buffer_is_whole_zeroed_pages() {
        let page = base_page_bytes() as u64;
        for pages in [Pages::Default, Pages::Small] {
            let mut buffer = Buffer::reserve(Bytes(page + 1), pages).unwrap();
            assert_eq!(buffer.lines().len() as u64 * Line::BYTES, 2 * page);
            assert!(buffer.lines().iter().all(|line| *line == Line([0; 64])));
            buffer.lines_mut().fill(Line([7; 64]));
            assert!(buffer.lines().iter().all(|line| *line == Line([7; 64])));
        }
        assert!(!Buffer::reserve(Bytes(0), Pages::Default).unwrap().lines().is_empty());
    }

    #[test]
    fn transparent_huge_pages_start_at_their_own_boundary() {
        match Buffer::reserve(Bytes(3 << 20), Pages::Thp) {
            Ok(buffer) => {
                assert!(buffer.lines().as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
                assert_eq!(size_of_val(buffer.lines()), 2 * HUGE_PAGE_BYTES);
            }
            Err(error) => assert!(error.to_string().contains("transparent huge pages"), "{error}"),
        }
    }

    /// Whether the byte at `address` can be read, as the kernel sees it: no fault, an error code.
    fn readable(address: *const u8) -> bool {
        let mut ends = [0; 2];
        // SAFETY: pipe fills the two integers; write copies one byte or answers EFAULT; the descriptors are our own.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            let written = libc::write(ends[1], address.cast(), 1);
            libc::close(ends[0]);
            libc::close(ends[1]);
            written == 1
        }
    }

    #[test]
    fn one_byte_too_far_faults() {
        for pages in [Pages::Default, Pages::Small, Pages::Thp] {
            let Ok(buffer) = Buffer::reserve(Bytes(100), pages) else { continue };
            let range = buffer.lines().as_ptr_range();
            let (start, end) = (range.start.cast::<u8>(), range.end.cast::<u8>());
            assert!(readable(start) && readable(end.wrapping_sub(1)));
            assert!(!readable(start.wrapping_sub(1)) && !readable(end));
        }
    }

    #[test]
    fn refusals_name_the_size_and_what_to_do() {
        let error = Buffer::reserve(Bytes(1 << 50), Pages::Default).unwrap_err().to_string();
        assert!(error.starts_with("could not map 1024 TiB in ordinary pages: "), "{error}");
        for pages in [Pages::Default, Pages::Thp, Pages::Huge2M] {
            assert!(Buffer::reserve(Bytes(u64::MAX), pages).is_err());
        }
        // 16 TiB: no pool is that large.
        let error = Buffer::reserve(Bytes(16 << 40), Pages::Huge2M).unwrap_err().to_string();
        assert!(error.starts_with("could not map 16 TiB in 2 MiB pages: "), "{error}");
        assert!(error.ends_with("; reserve them with `sysctl vm.nr_hugepages=8388608`"), "{error}");
    }

    #[test]
    fn touched_pages_have_a_place_and_others_do_not() {
        let page = base_page_bytes();
        let mut buffer = Buffer::reserve(Bytes(64 * page as u64), Pages::Small).unwrap();
        buffer.bind(&Policy::FirstTouch).unwrap();
        let half = buffer.lines().len() / 2;
        fill_words(&mut buffer.lines_mut()[..half], 0, 1);
        // A sandbox may forbid the question.
        let Ok(placement) = buffer.nodes(0..2 * half, 16) else { return };
        assert_eq!((placement.pages.values().sum::<u64>(), placement.unknown), (8, 8));
        assert_eq!(buffer.huge_share(), Some(0.0));
        let placement = buffer.nodes(0..half, usize::MAX).unwrap();
        assert_eq!((placement.pages.values().sum::<u64>(), placement.unknown), (32, 0));
        // A range in the middle of a page is that page's; ranges beyond the end are cut.
        assert_eq!(buffer.nodes(1..2, 5).unwrap().pages.len(), 1);
        assert_eq!(buffer.nodes(2 * half..5 * half, 5).unwrap().pages, BTreeMap::new());
        assert_eq!(buffer.nodes(0..half, 0).unwrap().pages, BTreeMap::new());
    }

    #[test]
    fn pages_come_from_the_node_that_was_asked_for() {
        let mut buffer = Buffer::reserve(Bytes(1 << 20), Pages::Default).unwrap();
        let node = NodeId(0);
        for policy in [Policy::Bind([node].into_iter().collect()), Policy::Interleave([node].into_iter().collect())] {
            // A sandbox may forbid it, or the node numbers begin elsewhere.
            if buffer.bind(&policy).is_err() {
                return;
            }
        }
        fill_words(buffer.lines_mut(), 0, 1);
        let Ok(placement) = buffer.nodes(0..buffer.lines().len(), 64) else { return };
        assert_eq!(placement.pages, [(node, 64)].into());
    }

    #[test]
    fn nodes_that_do_not_exist_are_refused() {
        let buffer = Buffer::reserve(Bytes(1 << 20), Pages::Default).unwrap();
        for node in [63, 64, 1000, 100_000, NodeSet::NUMBER_LIMIT - 1] {
            let nodes: NodeSet = [NodeId(node)].into_iter().collect();
            let error = buffer.bind(&Policy::Bind(nodes)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("could not place 1 MiB on memory nodes '{node}': ")), "{error}");
        }
        assert!(buffer.bind(&Policy::Interleave(NodeSet::default())).is_err());
        assert!(buffer.bind(&Policy::FirstTouch).is_ok());
    }

    #[test]
    fn node_masks_reach_the_highest_node() {
        let mask = |text: &str| node_mask(&text.parse().unwrap());
        assert_eq!(mask(""), [0]);
        assert_eq!(mask("0,3"), [0b1001]);
        assert_eq!(mask("1,64,130"), [2, 1, 4]);
    }

    /// From Linux 6.1, shortened: a file, a buffer with huge pages, a neighbour, a buffer from the hugetlb pool.
    const SMAPS: &str = "\
55d0c0a00000-55d0c0a2b000 r--p 00000000 fe:00 1234                       /usr/bin/some thing
Size:                172 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                 172 kB
AnonHugePages:         0 kB
VmFlags: rd mr mw me sd
7f0000200000-7f0000a00000 rw-p 00000000 00:00 0
Size:               8192 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                8192 kB
Pss:                8192 kB
AnonHugePages:      6144 kB
ProtectionKey:         0
VmFlags: rd wr mr mw me nr sd hg
7f0000a00000-7f0000a01000 ---p 00000000 00:00 0
Size:                  4 kB
KernelPageSize:        4 kB
Rss:                   0 kB
AnonHugePages:         0 kB
7f0000c00000-7f0001000000 rw-p 00000000 00:0f 77                         /anon_hugepage (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
MMUPageSize:        2048 kB
Rss:                   0 kB
AnonHugePages:         0 kB
Private_Hugetlb:    4096 kB
";

    #[test]
    fn smaps_speaks_of_the_mappings_in_range() {
        let buffer = smaps_of(SMAPS, 0x7f00_0020_0000..0x7f00_00a0_0000).unwrap();
        assert_eq!(buffer.huge_share(), Some(0.75));
        assert_eq!(buffer.kernel_page_bytes, Bytes(4096));
        let untouched = smaps_of(SMAPS, 0x7f00_00a0_0000..0x7f00_00a0_1000).unwrap();
        assert_eq!(untouched.huge_share(), None);
        let pool = smaps_of(SMAPS, 0x7f00_00c0_0000..0x7f00_0100_0000).unwrap();
        assert_eq!((pool.huge_share(), pool.kernel_page_bytes), (Some(1.0), Bytes(2 << 20)));
        assert_eq!(smaps_of(SMAPS, 0..4096), None);
        assert_eq!(smaps_of("", 0..4096), None);
    }

    #[test]
    fn words_do_not_depend_on_how_the_array_is_split() {
        let mut whole = [Line([0; 64]); 100];
        fill_words(&mut whole, 1000, 42);
        for split in [0, 1, 37, 100] {
            let mut parts = [Line([0; 64]); 100];
            let (left, right) = parts.split_at_mut(split);
            fill_words(right, 1000 + split as u64, 42);
            fill_words(left, 1000, 42);
            assert_eq!(parts, whole);
        }
        let mut other = [Line([0; 64]); 100];
        fill_words(&mut other, 1000, 43);
        assert!(whole.iter().zip(&other).all(|(one, other)| one != other));
    }

    #[test]
    fn words_vary_and_are_numbers_between_one_and_two() {
        let mut lines = [Line([0; 64]); 512];
        fill_words(&mut lines, 0, 0);
        let mut words: Vec<_> = lines.iter().flat_map(Line::words).collect();
        assert!(words.iter().all(|word| (1.0..2.0).contains(&f64::from_bits(*word))));
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 4096);
        // The end of the index range wraps instead of panicking.
        fill_words(&mut lines[..2], u64::MAX - 1, u64::MAX);
    }
}
