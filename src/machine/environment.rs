//! Limits and settings of the operating system that taint or bound a measurement. `None` is *unknown*, never 0.

use super::cgroup::Cgroup;
use super::sysfs::{meminfo, text};
use crate::units::{Bytes, NodeSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the operating system allows and how it is set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Kernel release (`uname -r`).
    pub kernel: Option<String>,
    /// CPUs' worth of time that the cgroup quota (v1 or v2) leaves; absent when unlimited or unknown.
    pub cpu_quota: Option<f64>,
    /// The cgroup's memory limit, the smallest on the way up.
    pub memory_limit_bytes: Option<Bytes>,
    /// What the cgroup already uses of that limit.
    pub memory_used_bytes: Option<Bytes>,
    /// Address space that the process may still take: its limit (`ulimit -v`) less what it holds.
    #[serde(default)]
    pub address_space_limit_bytes: Option<Bytes>,
    /// MemAvailable of /proc/meminfo.
    pub memory_available_bytes: Option<Bytes>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Free 2 MiB pages in the hugetlb pool.
    pub free_2m_pages: Option<u64>,
    /// Automatic NUMA balancing: whether the kernel moves pages by itself.
    pub numa_balancing: Option<bool>,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Clock source of the kernel, such as `tsc`.
    pub clock_source: Option<String>,
    /// DMI product name: on a cloud, often the vendor's platform.
    pub product: Option<String>,
    /// DIMMs as SMBIOS tells them to root.
    pub dimms: Option<Dimms>,
    /// Whether the kernel counts stolen time here (a guest whose hypervisor reports it).
    pub steal_counted: Option<bool>,
    /// Load average over one minute at start.
    pub load_1m: Option<f64>,
    /// OpenMP runtimes by name, each with its file; none where that was not looked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub openmp: BTreeMap<String, String>,
}

/// Populated memory modules (no serial numbers are read).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dimms {
    /// Modules present.
    pub populated: u32,
    /// Slots in all.
    pub slots: u32,
    /// Configured transfers per second, when all modules agree.
    pub transfers_per_s: Option<u64>,
    /// Data width of one module in bits, when all modules agree.
    pub width_bits: Option<u32>,
    /// Modules × width × transfers: an upper bound on the peak, reached only when each module has its own channel.
    pub peak_bytes_per_s: Option<f64>,
}

impl Environment {
    /// Reads it below `root`, which is `/` except in tests.
    pub fn read(root: &Path) -> Environment {
        let memory = memory_limit(root);
        let stat = text(root.join("proc/stat"));
        Environment {
            kernel: text(root.join("proc/sys/kernel/osrelease")),
            cpu_quota: cpu_quota(root),
            memory_limit_bytes: memory.map(|(limit, _)| limit),
            memory_used_bytes: memory.and_then(|(_, used)| used),
            memory_available_bytes: text(root.join("proc/meminfo")).and_then(|text| meminfo(&text, "MemAvailable")),
            address_space_limit_bytes: text(root.join("proc/self/limits"))
                .and_then(|limits| address_space(&limits))
                .map(|limit| {
                    let held = text(root.join("proc/self/status")).and_then(|status| meminfo(&status, "VmSize"));
                    Bytes(limit.0.saturating_sub(held.unwrap_or_default().0))
                }),
            transparent_huge_pages: text(root.join("sys/kernel/mm/transparent_hugepage/enabled"))
                .and_then(|text| chosen(&text)),
            free_2m_pages: number(root.join("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")),
            numa_balancing: number(root.join("proc/sys/kernel/numa_balancing")).map(|mode| mode != 0),
            governor: text(root.join("sys/devices/system/cpu/cpufreq/policy0/scaling_governor"))
                .or_else(|| text(root.join("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))),
            clock_source: text(root.join("sys/devices/system/clocksource/clocksource0/current_clocksource")),
            product: text(root.join("sys/class/dmi/id/product_name")).filter(|name| !name.is_empty()),
            dimms: std::fs::read(root.join("sys/firmware/dmi/tables/DMI")).ok().and_then(|table| Dimms::parse(&table)),
            // Zero may also mean that nothing was stolen so far.
            steal_counted: stat.and_then(|text| steal_ticks(&text)).filter(|ticks| *ticks > 0).map(|_| true),
            load_1m: text(root.join("proc/loadavg")).and_then(|text| load_1m(&text)),
            openmp: BTreeMap::new(),
        }
    }
}

/// Memory nodes that this process may use (cpuset), below `root`.
pub(super) fn allowed_nodes(root: &Path) -> Option<NodeSet> {
    let status = text(root.join("proc/self/status"))?;
    status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")?.parse().ok())
}

/// Stolen time of all CPUs, the eighth number of the first line of /proc/stat.
pub(super) fn steal_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    all.split_whitespace().nth(7)?.parse().ok()
}

/// The first number of /proc/loadavg.
pub(super) fn load_1m(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

fn number(path: PathBuf) -> Option<u64> {
    text(path)?.parse().ok()
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_string())
}

/// The smallest quota on the way up, in CPUs.
fn cpu_quota(root: &Path) -> Option<f64> {
    // quota of -1 or `max` does not parse: no limit.
    let ratio = |quota: &str, period: &str| {
        let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
        (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
    };
    let of_v1 = |dir: &PathBuf| ratio(&text(dir.join("cpu.cfs_quota_us"))?, &text(dir.join("cpu.cfs_period_us"))?);
    let of_v2 = |dir: &PathBuf| {
        let text = text(dir.join("cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        ratio(quota, period)
    };
    let quotas: Vec<f64> = match Cgroup::find(root, "cpu")? {
        Cgroup::V1(dirs) => dirs.iter().filter_map(of_v1).collect(),
        Cgroup::V2(dirs) => dirs.iter().filter_map(of_v2).collect(),
    };
    quotas.into_iter().reduce(f64::min)
}

/// The soft limit of the line `Max address space` of /proc/self/limits; `None` when unlimited.
fn address_space(limits: &str) -> Option<Bytes> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok().map(Bytes)
}

/// The smallest memory limit on the way up, and what the group that has it uses (file pages that the kernel would drop
/// first do not count).
fn memory_limit(root: &Path) -> Option<(Bytes, Option<Bytes>)> {
    /// Version 1 writes *no limit* as the largest multiple of a page that a signed number holds, which depends on the page.
    const UNLIMITED: u64 = 1 << 60;
    let (dirs, limit, usage, inactive) = match Cgroup::find(root, "memory")? {
        Cgroup::V1(dirs) => (dirs, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
        Cgroup::V2(dirs) => (dirs, "memory.max", "memory.current", "inactive_file "),
    };
    let limits = dirs.iter().filter_map(|dir| number(dir.join(limit)).map(|bytes| (bytes, dir)));
    let (bytes, dir) = limits.filter(|(bytes, _)| *bytes < UNLIMITED).min()?;
    let droppable = text(dir.join("memory.stat"))
        .and_then(|stat| stat.lines().find_map(|line| line.strip_prefix(inactive)?.parse::<u64>().ok()));
    let used = number(dir.join(usage)).map(|used| Bytes(used.saturating_sub(droppable.unwrap_or(0))));
    Some((Bytes(bytes), used))
}

impl Dimms {
    /// Reads the *memory device* structures (type 17) of an SMBIOS table; offsets as in DSP0134, version 3.
    /// A table that ends early gives what came before its end; `None` when that holds no slot.
    fn parse(table: &[u8]) -> Option<Dimms> {
        const MEMORY_DEVICE: u8 = 17;
        const END_OF_TABLE: u8 = 127;
        const HEADER_BYTES: usize = 4;
        let mut rest = table;
        let (mut slots, mut modules) = (0, Vec::new());
        while let [kind, length, ..] = *rest {
            let length = usize::from(length);
            if length < HEADER_BYTES || length > rest.len() || kind == END_OF_TABLE {
                break;
            }
            let (fields, strings) = rest.split_at(length);
            if kind == MEMORY_DEVICE {
                slots += 1;
                // 0 is an empty slot. The size itself does not matter here.
                if word(fields, 0x0C).is_some_and(|size| size != 0) {
                    modules.push((word(fields, 0x0A), megatransfers(fields)));
                }
            }
            // The strings end with two zero bytes, also when there are none.
            let Some(end) = strings.windows(2).position(|pair| pair == [0, 0]) else { break };
            rest = &strings[end + 2..];
        }
        let width = |width: Option<u16>| width.filter(|bits| !matches!(bits, 0 | 0xFFFF)).map(u32::from);
        let width_bits = agreed(modules.iter().map(|module| width(module.0)));
        let transfers_per_s = agreed(modules.iter().map(|module| module.1)).map(|mega| u64::from(mega) * 1_000_000);
        let populated = modules.len() as u32;
        let peak = |(bits, transfers): (u32, u64)| f64::from(populated) * f64::from(bits) / 8.0 * transfers as f64;
        let peak_bytes_per_s = width_bits.zip(transfers_per_s).map(peak);
        (slots > 0).then_some(Dimms { populated, slots, transfers_per_s, width_bits, peak_bytes_per_s })
    }
}

fn word(fields: &[u8], offset: usize) -> Option<u16> {
    fields.get(offset..offset + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// The configured speed in MT/s: a word, or a double word further on where that is too small.
fn megatransfers(fields: &[u8]) -> Option<u32> {
    match word(fields, 0x20)? {
        0 => None,
        0xFFFF => {
            let (low, high) = (word(fields, 0x58)?, word(fields, 0x5A)?);
            Some(u32::from(low) | u32::from(high) << 16).filter(|mega| *mega != 0)
        }
        speed => Some(u32::from(speed)),
    }
}

/// The value that all have, if they do.
fn agreed<T: PartialEq + Copy>(mut values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = values.next()??;
    values.all(|value| value == Some(first)).then_some(first)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A made-up file system, removed at the end.
    pub(in crate::machine) struct Tree {
        pub(in crate::machine) root: PathBuf,
    }

    impl Tree {
        pub(in crate::machine) fn new(name: &str) -> Tree {
            let root = std::env::temp_dir().join(format!("membar-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&root).unwrap();
            Tree { root }
        }
        pub(in crate::machine) fn write(&self, path: &str, text: &str) {
            let path = self.root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn nothing_known_is_none_not_zero() {
        let tree = Tree::new("empty");
        assert_eq!(Environment::read(&tree.root), Environment::default());
        assert_eq!(allowed_nodes(&tree.root), None);
    }

    #[test]
    fn version_2_limits_are_the_smallest_on_the_way_up() {
        let tree = Tree::new("v2");
        tree.write("proc/self/cgroup", "0::/pod/box");
        tree.write("sys/fs/cgroup/pod/cpu.max", "150000 100000");
        tree.write("sys/fs/cgroup/pod/box/cpu.max", "max 100000");
        tree.write("sys/fs/cgroup/pod/memory.max", "max");
        tree.write("sys/fs/cgroup/pod/box/memory.max", "1000000");
        tree.write("sys/fs/cgroup/pod/box/memory.current", "600000");
        tree.write("sys/fs/cgroup/pod/box/memory.stat", "anon 5\nactive_file 7\ninactive_file 100000");
        let environment = Environment::read(&tree.root);
        assert_eq!(environment.cpu_quota, Some(1.5));
        assert_eq!(environment.memory_limit_bytes, Some(Bytes(1_000_000)));
        assert_eq!(environment.memory_used_bytes, Some(Bytes(500_000)));
    }

    #[test]
    fn version_1_limits_are_read_where_the_container_mounts_them() {
        let tree = Tree::new("v1");
        // The path is the host's: only the root of each hierarchy is visible.
        tree.write("proc/self/cgroup", "5:cpuacct,cpu:/docker/abc\n4:memory:/docker/abc\n0::/");
        tree.write("sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us", "50000");
        tree.write("sys/fs/cgroup/cpuacct,cpu/cpu.cfs_period_us", "100000");
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        let environment = Environment::read(&tree.root);
        assert_eq!((environment.cpu_quota, environment.memory_limit_bytes), (Some(0.5), None));
        tree.write("sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us", "-1");
        assert_eq!(Environment::read(&tree.root).cpu_quota, None);
    }

    #[test]
    fn settings_are_read() {
        let tree = Tree::new("settings");
        tree.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
        tree.write("proc/sys/kernel/numa_balancing", "0");
        tree.write("proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1");
        tree.write("proc/loadavg", "0.25 0.1 0.0 1/2 3");
        tree.write(
            "proc/self/limits",
            "Limit   Soft Limit  Hard Limit  Units\nMax address space   409600000   unlimited  bytes",
        );
        tree.write("proc/self/status", "Name:\tx\nMems_allowed_list:\t0,2-3");
        let environment = Environment::read(&tree.root);
        assert_eq!(environment.transparent_huge_pages.as_deref(), Some("madvise"));
        assert_eq!(environment.numa_balancing, Some(false));
        assert_eq!(environment.steal_counted, Some(true));
        assert_eq!(environment.load_1m, Some(0.25));
        assert_eq!(environment.address_space_limit_bytes, Some(Bytes(409_600_000)));
        assert_eq!(address_space("Max address space   unlimited   unlimited  bytes"), None);
        assert_eq!(allowed_nodes(&tree.root).unwrap().to_string(), "0,2-3");
    }

    fn memory_device(width: u16, size: u16, speed: u16) -> Vec<u8> {
        let mut fields = vec![0; 0x5C];
        fields[0] = 17;
        fields[1] = 0x5C;
        fields[0x0A..0x0C].copy_from_slice(&width.to_le_bytes());
        fields[0x0C..0x0E].copy_from_slice(&size.to_le_bytes());
        fields[0x20..0x22].copy_from_slice(&speed.to_le_bytes());
        fields[0x58..0x5A].copy_from_slice(&8800u16.to_le_bytes());
        fields.extend(b"DIMM A1\0\0");
        fields
    }

    #[test]
    fn memory_modules_are_counted_from_any_prefix_of_a_table() {
        let mut table = vec![0, 4, 0, 0, 0, 0];
        table.extend(memory_device(64, 0x7FFF, 4800));
        table.extend(memory_device(64, 0, 0));
        table.extend(memory_device(64, 16384, 4800));
        table.extend([127, 4, 0, 0, 0, 0, 17, 0, 0]);
        let dimms = Dimms::parse(&table).unwrap();
        assert_eq!((dimms.populated, dimms.slots), (2, 3));
        assert_eq!((dimms.width_bits, dimms.transfers_per_s), (Some(64), Some(4_800_000_000)));
        assert_eq!(dimms.peak_bytes_per_s, Some(76.8e9));
        for end in 0..table.len() {
            let _ = Dimms::parse(&table[..end]);
        }
        table.truncate(table.len() - 9);
        table.extend(memory_device(64, 1, 0xFFFF));
        assert_eq!(Dimms::parse(&table).unwrap().transfers_per_s, None, "modules that disagree");
        assert_eq!(Dimms::parse(&memory_device(0, 1, 0xFFFF)).unwrap().transfers_per_s, Some(8_800_000_000));
        assert_eq!(Dimms::parse(&[17, 0, 17, 0]), None);
    }
}
