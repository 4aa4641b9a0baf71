use super::*;
use crate::workload::models;

fn machine(source: &str) -> Machine {
    Machine::from_source(source).unwrap()
}

fn options(machine: &Machine) -> Options {
    let cpus = machine.topology.cores_first(&machine.allowed_cpus);
    Options { preset: Preset::Quick, ..Options::new(cpus) }
}

const SMALL: &str = "synthetic:\"numa:1(memory=16000000000) l3:1(size=33554432) core:2 pu:1\"";
const LARGE: &str = "synthetic:\"pack:2 numa:2(memory=400000000000) l3:4(size=33554432) core:8 pu:2\"";

#[test]
fn every_model_gets_a_layout_whose_weights_do_not_overlap() {
    for model in models().unwrap() {
        for quantization in &model.quantizations {
            let token = Token::new(model, quantization, Engine::LlamaCpp).unwrap();
            let layout = Layout::new(&token, Bytes(1 << 28), Bytes(1 << 30));
            let mut layers: Vec<u32> = layout.kinds.iter().flat_map(|kind| kind.layers.clone()).collect();
            layers.sort_unstable();
            assert_eq!(layers, (0..model.layers).collect::<Vec<_>>());
            let places = layout.places(&token);
            for (phase, place) in token.phases.iter().zip(&places) {
                assert_eq!(phase.weight.is_some(), place.is_some());
                assert!(place.is_none_or(|place| place < layout.lines()));
            }
            assert!(layout.reuse_bytes.0 > 0 && layout.reuse_bytes.0 < u64::MAX);
        }
    }
}

#[test]
fn slots_grow_in_proportion_and_stay_in_the_limit() {
    let model = Model::find("Llama-2-7B").unwrap();
    let token = Token::new(model, model.quantization("Q4_K_M").unwrap(), Engine::LlamaCpp).unwrap();
    let least = Layout::new(&token, Bytes(0), Bytes(0));
    assert!(least.kinds.iter().all(|kind| kind.slots == 1));
    let quick = Layout::new(&token, Bytes(0), Bytes(1 << 30));
    assert!(quick.resident_bytes.0 <= 1 << 30);
    let slots: Vec<u64> = quick.kinds.iter().map(|kind| kind.slots).collect();
    assert!(slots.iter().all(|slots| (2..=5).contains(slots)), "{slots:?}");
    let whole = Layout::new(&token, Bytes(0), Bytes(1 << 40));
    assert!(whole.kinds.iter().all(|kind| kind.slots == kind.layers.len() as u64));
    // All of the file but most rows of the embedding, on whole lines.
    let file = model.file_bytes(model.quantization("Q4_K_M").unwrap());
    assert!(whole.resident_bytes.0 < file && whole.resident_bytes.0 > file / 100 * 98);
    // More than the caches, whatever the limit.
    assert!(Layout::new(&token, Bytes(3 << 30), Bytes(0)).resident_bytes.0 >= 3 << 30);
}

#[test]
fn the_default_plan() {
    let machine = machine(SMALL);
    let plan = Plan::new(&machine, &options(&machine)).unwrap();
    let names: Vec<(&str, &str)> = plan.models.iter().map(|model| (model.model, model.quantization)).collect();
    assert_eq!(names, [("Qwen3-30B-A3B", "MXFP4"), ("Llama-2-7B", "Q4_K_M")]);
    assert_eq!(plan.placement, Policy::FirstTouch);
    let shapes: Vec<(usize, &str, usize, bool)> =
        plan.configurations.iter().map(|c| (c.cpus.len(), c.barrier.name(), c.arms.len(), c.baseline)).collect();
    let others = ["dissemination"];
    let sweep = [(1, "central", 6, false), (2, "central", 6, true)];
    let changes = others.map(|barrier| (2, barrier, 1, false));
    assert_eq!(shapes, [&sweep[..], &changes].concat());
    assert!(plan.models.iter().all(|model| model.caveats.is_empty()), "{:?}", plan.models[0].caveats);
    assert!(plan.arena_bytes.0 <= 1 << 30 && plan.estimated_s > 1.0 && plan.estimated_s < 120.0);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["configurations"][1]["barrier"], "central");
    assert_eq!(json["models"][0]["barriers_per_token"], 2070);
}

#[test]
fn large_machines_interleave_and_sweep_within_bounds() {
    let machine = machine(LARGE);
    let plan = Plan::new(&machine, &options(&machine)).unwrap();
    assert!(matches!(&plan.placement, Policy::Interleave(nodes) if nodes.len() == 4));
    let sweep: Vec<usize> = plan.configurations.iter().filter(|c| c.arms.len() > 1).map(|c| c.cpus.len()).collect();
    assert!(
        sweep.len() <= SWEEP_MOST && sweep.contains(&1) && sweep.contains(&128) && sweep.contains(&256),
        "{sweep:?}"
    );
    assert_eq!(plan.configurations.iter().filter(|c| c.baseline).map(|c| c.cpus.len()).collect::<Vec<_>>(), [128]);
    // 16 caches of 32 MiB: eight times that are held, although the limit is lower.
    let caches = 16 * (32 << 20);
    for model in &plan.models {
        let quantization = Model::find(model.model).unwrap().quantization(model.quantization).unwrap();
        let (resident, file) = (model.layout.resident_bytes.0, quantization.file_bytes);
        assert!(resident >= (8 * caches).min(file / 100 * 97), "{resident} of {file}");
    }
    assert_eq!(plan.roof.candidates.last().map(Vec::len), Some(256));
}

#[test]
fn too_little_memory_is_refused_with_the_arithmetic() {
    let machine = machine("synthetic:\"numa:1(memory=200000000) l3:1(size=33554432) core:2 pu:1\"");
    let error = Plan::new(&machine, &options(&machine)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("1 GiB were asked for") && error.contains("the least that works is"), "{error}");
    // One that does not fit does not keep the other from being measured.
    let machine = self::machine("synthetic:\"numa:1(memory=1100000000) l3:1(size=33554432) core:2 pu:1\"");
    let models =
        ["DeepSeek-V3/R1", "Llama-2-7B"].map(|name| ModelChoice { model: name.into(), quantization: None, file: None });
    let plan = Plan::new(&machine, &Options { models: models.to_vec(), ..options(&machine) }).unwrap();
    assert_eq!((plan.models.len(), plan.left_out.len()), (1, 1));
}

#[test]
fn unknown_caches_and_small_reuse_are_caveats() {
    let machine = machine("synthetic:\"numa:1(memory=160000000000) core:16 pu:1\"");
    let plan = Plan::new(&machine, &options(&machine)).unwrap();
    let unknown =
        |caveat: &Caveat| matches!(caveat, Caveat::CacheSizeUnknown { assumed_bytes: Bytes(n) } if *n == 64 << 20);
    assert!(plan.models.iter().all(|model| model.caveats.iter().any(unknown)));
    let machine = self::machine("synthetic:\"numa:1(memory=160000000000) l3:1(size=1073741824) core:16 pu:1\"");
    let plan = Plan::new(&machine, &options(&machine)).unwrap();
    let resident = |caveat: &Caveat| matches!(caveat, Caveat::CacheResident { .. });
    let marked: Vec<bool> = plan.models.iter().map(|model| model.caveats.iter().any(resident)).collect();
    // The whole of Llama is in memory, 4 GB between readings; half of the layers of Qwen are, 1 GB between readings.
    assert_eq!(marked, [true, false]);
}

#[test]
fn wrong_options_are_usage_errors() {
    let machine = machine(SMALL);
    let base = options(&machine);
    let wrong = [
        Options { threads: Some(vec![3]), ..base.clone() },
        Options { threads: Some(vec![0]), ..base.clone() },
        Options { wait: Some(Wait::Sleep), ..base.clone() },
        Options { engine: Engine::IkLlamaCpp, ..base.clone() },
        Options { models: vec![ModelChoice { model: "x".into(), quantization: None, file: None }], ..base.clone() },
        Options { cpus: vec![], ..base.clone() },
    ];
    for options in wrong {
        assert_eq!(Plan::new(&machine, &options).map(|_| ()).unwrap_err().kind(), crate::error::Kind::Usage);
    }
}
