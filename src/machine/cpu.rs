//! The processor's identity and the instruction-set bundles that both it and the operating system support.

use super::sysfs::text;
use serde::{Serialize, Serializer};
use std::path::Path;
use std::sync::OnceLock;

/// What kernels are written for: instruction-set levels, lowest first, and last the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, any architecture.
    Rust,
    /// x86-64 as every one of them is.
    Sse2,
    /// x86-64 with AVX2, its registers enabled by the operating system.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL, its registers enabled by the operating system.
    Avx512,
    /// Whatever instructions the C library picks for itself, on any architecture. Above all levels, because it may use
    /// them all: a cap on instructions drops it.
    Libc,
}

impl Isa {
    /// All of them, lowest first.
    pub const ALL: [Isa; 5] = [Isa::Rust, Isa::Sse2, Isa::Avx2, Isa::Avx512, Isa::Libc];

    /// Whether it names instructions, as everything but the C library does.
    pub fn is_instruction_set(self) -> bool {
        self != Isa::Libc
    }

    /// The name on the command line, in kernel names and in records.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Rust => "rust",
            Isa::Sse2 => "sse2",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Libc => "libc",
        }
    }
}

/// Instructions that no level includes: a kernel that needs one says so besides its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extension {
    /// Fused multiply-add of 32-bit floats.
    Fma,
    /// Conversion between 16-bit and 32-bit floats.
    F16c,
    /// Products of 8-bit integers, added by fours.
    Avx512Vnni,
    /// Products of 16-bit brain floats, added by twos.
    Avx512Bf16,
}

impl Extension {
    /// All of them.
    pub const ALL: [Extension; 4] = [Extension::Fma, Extension::F16c, Extension::Avx512Vnni, Extension::Avx512Bf16];

    /// The name in lists, as Linux writes it in /proc/cpuinfo.
    pub fn name(self) -> &'static str {
        match self {
            Extension::Fma => "fma",
            Extension::F16c => "f16c",
            Extension::Avx512Vnni => "avx512_vnni",
            Extension::Avx512Bf16 => "avx512_bf16",
        }
    }

    /// The lowest level that a kernel with these instructions is written for: a cap below it drops them.
    pub fn level(self) -> Isa {
        match self {
            Extension::Fma | Extension::F16c => Isa::Avx2,
            Extension::Avx512Vnni | Extension::Avx512Bf16 => Isa::Avx512,
        }
    }
}

/// The levels and extensions that may be used in this process. Only [`IsaSet::detect`] makes one, so a member proves that
/// the processor and the operating system support it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsaSet {
    levels: Vec<Isa>,
    extensions: Vec<Extension>,
}

impl IsaSet {
    /// Asks the processor (CPUID) and the operating system (XCR0).
    pub fn detect() -> IsaSet {
        #[cfg(target_arch = "x86_64")]
        let cpuid = raw_cpuid::CpuId::new();
        #[cfg(target_arch = "x86_64")]
        let mut levels = x86_64::usable(&cpuid, x86_64::enabled_state());
        #[cfg(target_arch = "x86_64")]
        let extensions = x86_64::extensions(&cpuid, &levels);
        #[cfg(not(target_arch = "x86_64"))]
        let (mut levels, extensions) = (vec![Isa::Rust], Vec::new());
        // It chooses among what there is, so it needs nothing.
        levels.push(Isa::Libc);
        IsaSet { levels, extensions }
    }

    /// The same without the levels above `max`: `--isa-max`.
    pub fn capped(&self, max: Isa) -> IsaSet {
        IsaSet {
            levels: self.levels.iter().copied().filter(|isa| *isa <= max).collect(),
            extensions: self.extensions.iter().copied().filter(|extension| extension.level() <= max).collect(),
        }
    }

    /// Whether `isa` may be used.
    pub fn contains(&self, isa: Isa) -> bool {
        self.levels.contains(&isa)
    }

    /// Whether `extension` may be used.
    pub fn has(&self, extension: Extension) -> bool {
        self.extensions.contains(&extension)
    }

    /// The usable instruction-set levels, lowest first: all members but the C library.
    pub fn instruction_sets(&self) -> impl Iterator<Item = Isa> + '_ {
        self.levels.iter().copied().filter(|isa| isa.is_instruction_set())
    }
}

impl Serialize for IsaSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.instruction_sets().map(Isa::name))
    }
}

/// Instructions with which a program, not only the kernel, waits for a write to a line that it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorWait {
    /// `umonitor` and `umwait`: WAITPKG, Intel since Tremont and Alder Lake.
    Umwait,
    /// `monitorx` and `mwaitx`: AMD since family 15h, models 60h and up.
    Mwaitx,
}

impl MonitorWait {
    /// Those of this processor, asked once (CPUID). A hypervisor that cannot let a guest wait hides the bit.
    pub fn detect() -> Option<MonitorWait> {
        static FOUND: OnceLock<Option<MonitorWait>> = OnceLock::new();
        #[cfg(target_arch = "x86_64")]
        let ask = || x86_64::monitor_wait(&raw_cpuid::CpuId::new());
        #[cfg(not(target_arch = "x86_64"))]
        let ask = || None;
        *FOUND.get_or_init(ask)
    }
}

/// Who made the processor and what it can do.
#[derive(Clone, Debug, Serialize)]
pub struct Cpu {
    /// The name it gives itself.
    pub model_name: String,
    /// Vendor, such as `AuthenticAMD`.
    pub vendor: String,
    /// Usable levels.
    pub isa: IsaSet,
    /// Cache line length in bytes, where known.
    pub line_bytes: Option<u32>,
    /// The hypervisor that runs this guest, where it says so.
    pub hypervisor: Option<String>,
}

impl Cpu {
    /// The processor that this process runs on.
    pub fn detect() -> Cpu {
        let root = Path::new("/");
        let line = text(root.join("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size"));
        let line_bytes = line.and_then(|text| text.parse().ok()).filter(|bytes| *bytes > 0);
        #[cfg(target_arch = "x86_64")]
        return x86_64::identify(line_bytes);
        #[cfg(not(target_arch = "x86_64"))]
        other::identify(root, line_bytes)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Cpu, Extension, Isa, IsaSet, MonitorWait};
    use raw_cpuid::{CpuId, CpuIdReader, Hypervisor};

    /// Bits of XCR0 (Intel SDM volume 1, 13.3): the register state that the operating system saves at a switch.
    /// Without it the registers belong to everybody.
    const YMM_STATE: u64 = 0b110;
    /// The same with the mask registers and both halves of the ZMM ones.
    const ZMM_STATE: u64 = 0b1110_0110;

    /// XCR0, or 0 where the operating system does not manage extended state.
    pub(super) fn enabled_state() -> u64 {
        let managed = CpuId::new().get_feature_info().is_some_and(|features| features.has_oxsave());
        if !managed {
            return 0;
        }
        // SAFETY: OSXSAVE was just checked, so xgetbv exists and the operating system allows it; register 0 always exists.
        unsafe { read_xcr0() }
    }

    #[target_feature(enable = "xsave")]
    unsafe fn read_xcr0() -> u64 {
        // SAFETY: the caller checked OSXSAVE.
        unsafe { std::arch::x86_64::_xgetbv(0) }
    }

    /// The levels that these CPUID leaves and this XCR0 allow together.
    pub(super) fn usable<R: CpuIdReader>(cpuid: &CpuId<R>, xcr0: u64) -> Vec<Isa> {
        let mut levels = vec![Isa::Rust, Isa::Sse2];
        let features = cpuid.get_feature_info();
        let avx = features.is_some_and(|features| features.has_oxsave() && features.has_avx());
        let Some(more) = cpuid.get_extended_feature_info().filter(|_| avx) else { return levels };
        if more.has_avx2() && xcr0 & YMM_STATE == YMM_STATE {
            levels.push(Isa::Avx2);
            let avx512 = more.has_avx512f() && more.has_avx512bw() && more.has_avx512dq() && more.has_avx512vl();
            if avx512 && xcr0 & ZMM_STATE == ZMM_STATE {
                levels.push(Isa::Avx512);
            }
        }
        levels
    }

    /// The extensions that these CPUID leaves show; their registers are those of their level, so they count only where that
    /// is among `levels`.
    pub(super) fn extensions<R: CpuIdReader>(cpuid: &CpuId<R>, levels: &[Isa]) -> Vec<Extension> {
        let features = cpuid.get_feature_info();
        let more = cpuid.get_extended_feature_info();
        let shown = |extension: &Extension| match extension {
            Extension::Fma => features.as_ref().is_some_and(|features| features.has_fma()),
            Extension::F16c => features.as_ref().is_some_and(|features| features.has_f16c()),
            Extension::Avx512Vnni => more.as_ref().is_some_and(|more| more.has_avx512vnni()),
            Extension::Avx512Bf16 => more.as_ref().is_some_and(|more| more.has_avx512_bf16()),
        };
        let usable = |extension: &Extension| levels.contains(&extension.level()) && shown(extension);
        Extension::ALL.into_iter().filter(usable).collect()
    }

    /// WAITPKG is bit 5 of leaf 7's ECX, MONITORX bit 29 of leaf 8000_0001h's.
    pub(super) fn monitor_wait<R: CpuIdReader>(cpuid: &CpuId<R>) -> Option<MonitorWait> {
        let waitpkg = cpuid.get_extended_feature_info().is_some_and(|features| features.has_waitpkg());
        let monitorx = || {
            let identifiers = cpuid.get_extended_processor_and_feature_identifiers();
            identifiers.is_some_and(|features| features.has_monitorx_mwaitx())
        };
        if waitpkg { Some(MonitorWait::Umwait) } else { monitorx().then_some(MonitorWait::Mwaitx) }
    }

    pub(super) fn identify(line_bytes: Option<u32>) -> Cpu {
        let cpuid = CpuId::new();
        let vendor =
            cpuid.get_vendor_info().map_or_else(|| "unknown".to_string(), |vendor| vendor.as_str().to_string());
        let brand = cpuid.get_processor_brand_string().map(|brand| brand.as_str().trim().to_string());
        // CLFLUSH states the line in units of 8 bytes.
        let flushed = cpuid.get_feature_info().map(|features| u32::from(features.cflush_cache_line_size()) * 8);
        Cpu {
            model_name: brand
                .filter(|brand| !brand.is_empty())
                .unwrap_or_else(|| format!("unnamed {vendor} processor")),
            vendor,
            isa: IsaSet::detect(),
            line_bytes: line_bytes.or(flushed.filter(|bytes| *bytes > 0)),
            hypervisor: hypervisor(&cpuid),
        }
    }

    /// The hypervisor's name for itself.
    fn hypervisor<R: CpuIdReader>(cpuid: &CpuId<R>) -> Option<String> {
        if !cpuid.get_feature_info()?.has_hypervisor() {
            return None;
        }
        let Some(info) = cpuid.get_hypervisor_info() else { return Some("an unnamed hypervisor".to_string()) };
        Some(match info.identify() {
            Hypervisor::HyperV => "Hyper-V".to_string(),
            Hypervisor::Unknown(ebx, ecx, edx) => {
                let name: Vec<u8> = [ebx, ecx, edx].into_iter().flat_map(u32::to_le_bytes).collect();
                let name: String = name.into_iter().map(char::from).filter(char::is_ascii_graphic).collect();
                if name.is_empty() { "an unnamed hypervisor".to_string() } else { name }
            }
            known => format!("{known:?}"),
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use raw_cpuid::CpuIdResult;

        /// Leaves 0, 1 and 7 as processors give them, cut down to the bits that are asked for.
        fn levels(leaf1_ecx: u32, leaf7_ebx: u32, xcr0: u64) -> Vec<Isa> {
            let cpuid = CpuId::with_cpuid_fn(move |leaf: u32, subleaf: u32| {
                let (eax, ebx, ecx, edx) = match (leaf, subleaf) {
                    // GenuineIntel
                    (0, _) => (7, 0x756e_6547, 0x6c65_746e, 0x4965_6e69),
                    (1, _) => (0x806f8, 0, leaf1_ecx, 0x078b_fbff),
                    (7, 0) => (0, leaf7_ebx, 0, 0),
                    _ => (0, 0, 0, 0),
                };
                CpuIdResult { eax, ebx, ecx, edx }
            });
            usable(&cpuid, xcr0)
        }

        #[test]
        fn a_level_needs_the_processor_and_the_operating_system() {
            const OSXSAVE_AVX: u32 = 1 << 27 | 1 << 28;
            const AVX2: u32 = 1 << 5;
            // F, DQ, BW, VL
            const AVX512: u32 = AVX2 | 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31;
            let sse2 = vec![Isa::Rust, Isa::Sse2];
            let (avx2, avx512) = (vec![Isa::Rust, Isa::Sse2, Isa::Avx2], Isa::ALL[..4].to_vec());
            assert_eq!(levels(OSXSAVE_AVX, AVX2, 0b111), avx2, "Zen 3, Linux");
            assert_eq!(levels(OSXSAVE_AVX, AVX512, 0b1110_0111), avx512, "Sapphire Rapids, Linux");
            assert_eq!(levels(OSXSAVE_AVX, AVX512, 0x602e7), avx512, "with PKRU and AMX state");
            assert_eq!(levels(OSXSAVE_AVX, AVX512, 0b111), avx2, "AVX-512 state switched off");
            assert_eq!(levels(OSXSAVE_AVX, AVX512, 0b1010_0111), avx2, "upper ZMM half missing");
            assert_eq!(levels(OSXSAVE_AVX, AVX512, 0b1100_0111), avx2, "mask registers missing");
            assert_eq!(levels(OSXSAVE_AVX, AVX512 & !(1 << 31), 0xe7), avx2, "Knights Landing: no VL");
            assert_eq!(levels(OSXSAVE_AVX, AVX512, 0b011), sse2, "no YMM state");
            assert_eq!(levels(1 << 28, AVX512, 0xe7), sse2, "no OSXSAVE");
            assert_eq!(levels(OSXSAVE_AVX, 0, 0b111), sse2, "Sandy Bridge: AVX alone");
        }

        #[test]
        fn an_extension_needs_its_bit_and_its_level() {
            use Extension::{Avx512Bf16, Avx512Vnni, F16c, Fma};
            // Leaf 1 ECX: FMA and F16C; leaf 7 ECX: VNNI; leaf 7, 1 EAX: BF16.
            let found = |leaf1_ecx: u32, leaf7_ecx: u32, leaf71_eax: u32, levels: &[Isa]| {
                let cpuid = CpuId::with_cpuid_fn(move |leaf: u32, subleaf: u32| {
                    let (eax, ebx, ecx, edx) = match (leaf, subleaf) {
                        (0, _) => (7, 0x756e_6547, 0x6c65_746e, 0x4965_6e69),
                        (1, _) => (0x806f8, 0, leaf1_ecx, 0),
                        (7, 0) => (1, 0, leaf7_ecx, 0),
                        (7, 1) => (leaf71_eax, 0, 0, 0),
                        _ => (0, 0, 0, 0),
                    };
                    CpuIdResult { eax, ebx, ecx, edx }
                });
                extensions(&cpuid, levels)
            };
            let all = &Isa::ALL[..4];
            assert_eq!(found(1 << 12 | 1 << 29, 1 << 11, 1 << 5, all), Extension::ALL);
            assert_eq!(found(1 << 12 | 1 << 29, 1 << 11, 1 << 5, &Isa::ALL[..3]), [Fma, F16c], "no ZMM state");
            assert_eq!(found(1 << 12 | 1 << 29, 1 << 11, 1 << 5, &Isa::ALL[..2]), []);
            assert_eq!(found(1 << 29, 0, 1 << 5, all), [F16c, Avx512Bf16]);
            assert_eq!(found(1 << 12, 1 << 11, 0, all), [Fma, Avx512Vnni]);
        }

        #[test]
        fn each_vendor_has_its_own_instructions_to_wait_for_a_write() {
            // GenuineIntel and AuthenticAMD in EBX, ECX, EDX.
            const INTEL: (u32, u32, u32) = (0x756e_6547, 0x6c65_746e, 0x4965_6e69);
            const AMD: (u32, u32, u32) = (0x6874_7541, 0x444d_4163, 0x6974_6e65);
            let found = |vendor: (u32, u32, u32), leaf7_ecx: u32, leaf_8000_0001_ecx: u32| {
                monitor_wait(&CpuId::with_cpuid_fn(move |leaf: u32, subleaf: u32| {
                    let (eax, ebx, ecx, edx) = match (leaf, subleaf) {
                        (0, _) => (7, vendor.0, vendor.1, vendor.2),
                        (7, 0) => (0, 0, leaf7_ecx, 0),
                        (0x8000_0000, _) => (0x8000_0008, 0, 0, 0),
                        (0x8000_0001, _) => (0, 0, leaf_8000_0001_ecx, 0),
                        _ => (0, 0, 0, 0),
                    };
                    CpuIdResult { eax, ebx, ecx, edx }
                }))
            };
            assert_eq!(found(INTEL, 1 << 5, 0), Some(MonitorWait::Umwait));
            assert_eq!(found(INTEL, !(1 << 5), 0), None);
            assert_eq!(found(AMD, 0, 1 << 29), Some(MonitorWait::Mwaitx));
            assert_eq!(found(AMD, 0, !(1 << 29)), None);
        }

        #[test]
        fn this_processor_agrees_with_the_standard_library() {
            let isa = IsaSet::detect();
            assert_eq!(isa.contains(Isa::Avx2), std::is_x86_feature_detected!("avx2"));
            assert_eq!(isa.contains(Isa::Avx512), std::is_x86_feature_detected!("avx512vl"));
            assert_eq!(isa.has(Extension::Fma), std::is_x86_feature_detected!("fma"));
            assert_eq!(isa.has(Extension::F16c), std::is_x86_feature_detected!("f16c"));
            assert_eq!(isa.has(Extension::Avx512Vnni), std::is_x86_feature_detected!("avx512vnni"));
            assert_eq!(isa.has(Extension::Avx512Bf16), std::is_x86_feature_detected!("avx512bf16"));
            let capped = isa.capped(Isa::Avx2);
            assert!(!capped.has(Extension::Avx512Vnni) && capped.has(Extension::Fma) == isa.has(Extension::Fma));
            assert!(!isa.capped(Isa::Sse2).has(Extension::Fma));
        }

        #[test]
        fn the_c_library_is_no_instruction_set_and_above_every_cap() {
            let isa = IsaSet::detect();
            assert!(isa.contains(Isa::Libc) && isa.instruction_sets().all(|isa| isa != Isa::Libc));
            let levels = isa.capped(Isa::Sse2);
            assert!(levels.contains(Isa::Sse2) && !levels.contains(Isa::Avx2) && !levels.contains(Isa::Libc));
            assert!(!isa.capped(Isa::Avx512).contains(Isa::Libc));
            assert_eq!(serde_json::to_value(&levels).unwrap(), serde_json::json!(["rust", "sse2"]));
        }
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod other {
    use super::{Cpu, IsaSet, text};
    use std::path::Path;

    /// Identifies the processor from what Linux shows below `root`.
    pub(super) fn identify(root: &Path, line_bytes: Option<u32>) -> Cpu {
        let midr = text(root.join("sys/devices/system/cpu/cpu0/regs/identification/midr_el1"))
            .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        let (vendor, model) = midr.map(arm).unzip();
        let named = text(root.join("proc/cpuinfo")).and_then(|text| {
            let field = |line: &str| {
                line.split_once(':').map(|(name, value)| (name.trim().to_string(), value.trim().to_string()))
            };
            let fields = text.lines().filter_map(field);
            fields.filter(|(name, _)| name == "model name" || name == "cpu").map(|(_, value)| value).next()
        });
        Cpu {
            model_name: named.or(model).unwrap_or_else(|| format!("unnamed {} processor", std::env::consts::ARCH)),
            vendor: vendor.unwrap_or_else(|| "unknown".to_string()),
            isa: IsaSet::detect(),
            line_bytes,
            hypervisor: hypervisor(root),
        }
    }

    /// Vendor and model of a MIDR_EL1 (Arm ARM, D17.2.100): implementer in bits 24–31, part in bits 4–15.
    fn arm(midr: u64) -> (String, String) {
        let (implementer, part) = ((midr >> 24) as u8, (midr >> 4) as u16 & 0xfff);
        let vendor = match implementer {
            0x41 => "Arm",
            0x46 => "Fujitsu",
            0x48 => "HiSilicon",
            0x4e => "NVIDIA",
            0x51 => "Qualcomm",
            0x61 => "Apple",
            0x6d => "Microsoft",
            0xc0 => "Ampere",
            _ => "unknown",
        };
        let model = match (implementer, part) {
            (0x41, 0xd08) => "Cortex-A72",
            (0x41, 0xd0c) => "Neoverse N1",
            (0x41, 0xd40) => "Neoverse V1",
            (0x41, 0xd49) => "Neoverse N2",
            (0x41, 0xd4f) => "Neoverse V2",
            (0x41, 0xd84) => "Neoverse V3",
            (0x41, 0xd8e) => "Neoverse N3",
            (0x46, 0x001) => "A64FX",
            (0x6d, 0xd49) => "Azure Cobalt 100",
            (0xc0, 0xac3) => "Ampere-1",
            (0xc0, 0xac4) => "Ampere-1a",
            _ => {
                return (
                    vendor.to_string(),
                    format!("{vendor} processor, implementer {implementer:#x} part {part:#x}"),
                );
            }
        };
        (vendor.to_string(), model.to_string())
    }

    /// What the firmware tells of a hypervisor where no instruction does. Absence proves nothing.
    fn hypervisor(root: &Path) -> Option<String> {
        if let Some(name) = text(root.join("sys/hypervisor/type")) {
            return Some(name);
        }
        if let Some(name) = text(root.join("proc/device-tree/hypervisor/compatible")) {
            return Some(name.trim_matches('\0').replace('\0', " "));
        }
        let dmi = |name: &str| text(root.join("sys/class/dmi/id").join(name)).unwrap_or_default();
        let (vendor, product) = (dmi("sys_vendor"), dmi("product_name"));
        match (vendor.as_str(), product.as_str()) {
            ("QEMU", _) => Some("QEMU or KVM".to_string()),
            ("Microsoft Corporation", "Virtual Machine") => Some("Hyper-V".to_string()),
            ("Google", "Google Compute Engine") => Some("KVM (Google)".to_string()),
            ("Amazon EC2", product) if !product.contains("metal") => Some("Nitro".to_string()),
            _ => None,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::machine::environment::tests::Tree;

        #[test]
        fn arm_processors_are_named_by_their_register() {
            let tree = Tree::new("midr");
            tree.write("sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "0x000000006d0fd490");
            tree.write("sys/class/dmi/id/sys_vendor", "Microsoft Corporation");
            tree.write("sys/class/dmi/id/product_name", "Virtual Machine");
            let cpu = identify(&tree.root, None);
            assert_eq!((cpu.model_name.as_str(), cpu.vendor.as_str()), ("Azure Cobalt 100", "Microsoft"));
            assert_eq!(cpu.hypervisor.as_deref(), Some("Hyper-V"));
        }
    }
}
