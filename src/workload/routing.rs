//! Which experts a router picks: even, skewed, or as somebody recorded it.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Steeper than any router: weights stay far from the least that a float can hold.
const STEEPEST: f64 = 10.0;
/// A file named by mistake may take all memory; this holds 10,000 tokens of 60 layers with 8 experts.
const MOST_TEXT: u64 = 64 << 20;

/// How the experts of a token and layer are drawn. A draw is one of these choices; they are numbered from 0 on, layer by
/// layer and token by token.
#[derive(Clone, Debug, PartialEq)]
pub enum Routing {
    /// All experts are equally likely.
    Uniform,
    /// Expert i, from 0 on, is drawn with a weight of 1/(i + 1)^exponent: the low ones are the popular ones.
    Zipf {
        /// 0 is as good as uniform; 1 is the law of words in a text.
        exponent: f64,
    },
    /// The draws of a file, which is taken from its beginning again at its end.
    File(Recorded),
}

/// Draws that stand in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Name of the file, without the directory.
    file: String,
    /// At least one.
    draws: Vec<Draw>,
}

/// A line of such a file.
#[derive(Clone, Debug, PartialEq)]
struct Draw {
    /// Its number, from 1 on.
    line: usize,
    /// Distinct, ascending.
    experts: Vec<u16>,
}

impl Routing {
    /// Reads `uniform`, `zipf:EXPONENT`, or the file of that name.
    ///
    /// In the file stands one line for each token and layer with experts, a token's layers one after another: numbers of
    /// the experts from 0 on, separated by blanks or commas. What follows `#` and lines without numbers say nothing.
    ///
    /// # Errors
    /// A usage error for a bad exponent, and for what is no such file. Whether it fits a model, [`check`](Routing::check)
    /// says.
    pub fn parse(text: &str) -> Result<Routing> {
        if text == "uniform" {
            return Ok(Routing::Uniform);
        }
        let Some(exponent) = text.strip_prefix("zipf:") else { return open(Path::new(text)).map(Routing::File) };
        let in_range = |exponent: &f64| (0.0..=STEEPEST).contains(exponent);
        exponent.parse().ok().filter(in_range).map(|exponent| Routing::Zipf { exponent }).ok_or_else(|| {
            Error::usage(
                format!("draw experts by '{text}'"),
                "its exponent is no number in range",
                format!("write a number from 0 to {STEEPEST}, as in zipf:1.2"),
            )
        })
    }

    /// Whether it can draw for a model. `draws` has, for each layer with experts, how many there are and how many a token
    /// picks.
    ///
    /// # Errors
    /// A usage error where more experts are picked than there are, and for a file with other layers, another number of
    /// experts, or experts that do not exist.
    pub fn check(&self, draws: &[(u64, u64)]) -> Result<()> {
        if let Some((of, picked)) = draws.iter().find(|(of, picked)| picked > of) {
            let reason = format!("there are {of} in a layer");
            return Err(Error::usage(format!("draw {picked} experts"), reason, "let a token use fewer of them"));
        }
        match self {
            Routing::File(recorded) => recorded.check(draws),
            Routing::Uniform | Routing::Zipf { .. } => Ok(()),
        }
    }

    /// The experts of a draw, distinct and ascending: `picked` of the numbers from 0 up to `of`, both as they passed
    /// [`check`](Routing::check). `of` is 65,536 at most.
    pub fn draw(&self, random: &mut fastrand::Rng, draw_index: usize, of: u64, picked: u64) -> Vec<u16> {
        let all = (0..of).map_while(|expert| u16::try_from(expert).ok());
        let mut experts = match self {
            Routing::Uniform => random.choose_multiple(all, picked as usize),
            Routing::Zipf { exponent } => {
                // Whoever waits shortest for the first event at a rate of its weight is drawn first: the same as drawing
                // one by one among those that are left (Efraimidis and Spirakis, 2006).
                let mut waits: Vec<(f64, u16)> = all
                    .map(|expert| (-(1.0 - random.f64()).ln() * (f64::from(expert) + 1.0).powf(*exponent), expert))
                    .collect();
                waits.sort_by(|(one, _), (other, _)| one.total_cmp(other));
                waits.into_iter().take(picked as usize).map(|(_, expert)| expert).collect()
            }
            Routing::File(recorded) => recorded.draws[draw_index % recorded.draws.len()].experts.clone(),
        };
        experts.sort_unstable();
        experts
    }
}

fn open(path: &Path) -> Result<Recorded> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let unreadable = |reason: String| {
        unusable(&path.display().to_string(), reason, "write uniform, zipf:EXPONENT, or the name of a file with draws")
    };
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    // Reading a pipe or a device would wait, or never end.
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(unreadable("it is no ordinary file".into()));
    }
    let mut text = String::new();
    file.take(MOST_TEXT + 1).read_to_string(&mut text).map_err(|error| unreadable(error.to_string()))?;
    if text.len() as u64 > MOST_TEXT {
        return Err(unreadable(format!("it has more than {MOST_TEXT} bytes")));
    }
    Recorded::read(&name, &text)
}

fn unusable(file: &str, reason: impl std::fmt::Display, advice: impl Into<String>) -> Error {
    Error::usage(format!("draw experts by the file {file}"), reason, advice)
}

impl Recorded {
    fn read(file: &str, text: &str) -> Result<Recorded> {
        let mut draws = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let numbers = text.split('#').next().unwrap_or_default();
            let mut experts = Vec::new();
            for word in numbers.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
                let expert: u16 = word.parse().map_err(|_| {
                    let reason = format!("line {line} has {word:?}, which is no number of an expert");
                    unusable(file, reason, "write numbers from 0 to 65535, separated by blanks or commas")
                })?;
                experts.push(expert);
            }
            experts.sort_unstable();
            if let Some(twice) = experts.windows(2).find(|pair| pair[0] == pair[1]) {
                let reason = format!("line {line} has expert {} twice", twice[0]);
                return Err(unusable(file, reason, "write each expert of a token and layer once"));
            }
            if !experts.is_empty() {
                draws.push(Draw { line, experts });
            }
        }
        if draws.is_empty() {
            return Err(unusable(file, "no experts stand in it", "write a line of them for each token and layer"));
        }
        Ok(Recorded { file: file.to_owned(), draws })
    }

    fn check(&self, layers: &[(u64, u64)]) -> Result<()> {
        if layers.is_empty() {
            return Err(unusable(&self.file, "the model has no experts", "leave the file out, or name another model"));
        }
        if !self.draws.len().is_multiple_of(layers.len()) {
            let reason = format!(
                "it has {} lines of experts, which are no whole tokens of {} layers with experts",
                self.draws.len(),
                layers.len()
            );
            return Err(unusable(&self.file, reason, "write a line for each layer of each token"));
        }
        for (draw, (of, picked)) in self.draws.iter().zip(layers.iter().cycle()) {
            let line = draw.line;
            if let Some(wrong) = draw.experts.iter().find(|expert| u64::from(**expert) >= *of) {
                let reason = format!("line {line} has expert {wrong}, and there are {of}");
                return Err(unusable(&self.file, reason, format!("number them from 0 to {}", of.saturating_sub(1))));
            }
            if draw.experts.len() as u64 != *picked {
                let reason = format!("line {line} has {} experts, and a token picks {picked}", draw.experts.len());
                return Err(unusable(&self.file, reason, format!("write {picked} of them in each line")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// How often each of `of` experts was drawn.
    fn counts(routing: &Routing, of: u64, picked: u64, draws: usize) -> Vec<usize> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut counts = vec![0; of as usize];
        for index in 0..draws {
            let experts = routing.draw(&mut random, index, of, picked);
            assert_eq!(experts.len() as u64, picked);
            assert!(experts.is_sorted_by(|one, other| one < other), "{experts:?}");
            experts.iter().for_each(|expert| counts[usize::from(*expert)] += 1);
        }
        counts
    }

    fn recorded(text: &str) -> Routing {
        Routing::File(Recorded::read("draws.txt", text).unwrap())
    }

    fn said(result: Result<impl std::fmt::Debug>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        error.to_string()
    }

    #[test]
    fn uniform_draws_take_all_experts_alike() {
        // 16,000 draws of 8 of 128: 1,000 each, with a standard deviation of 31.
        for routing in [Routing::Uniform, Routing::Zipf { exponent: 0.0 }] {
            let counts = counts(&routing, 128, 8, 16_000);
            assert!(counts.iter().all(|count| (850..1150).contains(count)), "{routing:?}: {counts:?}");
        }
    }

    #[test]
    fn draws_of_zipf_follow_their_weights() {
        // One of four at exponent 1: 1, 1/2, 1/3, 1/4 of 25/12.
        let counts_of_one = counts(&Routing::Zipf { exponent: 1.0 }, 4, 1, 25_000);
        for (count, expected) in counts_of_one.iter().zip([12_000usize, 6_000, 4_000, 3_000]) {
            assert!(count.abs_diff(expected) < 400, "{counts_of_one:?}");
        }
        // Two of three with the weights 6, 3, 2, drawn one after the other in either order: the last one is missing.
        let missing = |first: f64, second: f64, last: f64| {
            let all = first + second + last;
            (first / all) * (second / (all - first)) + (second / all) * (first / (all - second))
        };
        let counts_of_two = counts(&Routing::Zipf { exponent: 1.0 }, 3, 2, 30_000);
        let expected = [missing(3.0, 2.0, 6.0), missing(6.0, 2.0, 3.0), missing(6.0, 3.0, 2.0)];
        for (count, missing) in counts_of_two.iter().zip(expected) {
            assert!(count.abs_diff((30_000.0 * (1.0 - missing)) as usize) < 500, "{counts_of_two:?} for {expected:?}");
        }
        // The steepest one still draws distinct experts, nearly always the first.
        let steep = counts(&Routing::Zipf { exponent: STEEPEST }, 512, 4, 1_000);
        assert!(steep[0] > 990 && steep[256..].iter().sum::<usize>() < 10, "{steep:?}");
    }

    #[test]
    fn draws_are_a_function_of_the_seed_and_can_take_all() {
        for routing in [Routing::Uniform, Routing::Zipf { exponent: 1.2 }] {
            let draw = |seed| routing.draw(&mut fastrand::Rng::with_seed(seed), 0, 128, 8);
            assert_eq!(draw(1), draw(1));
            assert_ne!(draw(1), draw(2));
            assert_eq!(routing.draw(&mut fastrand::Rng::with_seed(1), 0, 4, 4), [0, 1, 2, 3]);
            assert_eq!(routing.draw(&mut fastrand::Rng::with_seed(1), 0, 1 << 16, 1 << 16).len(), 1 << 16);
        }
    }

    #[test]
    fn draws_of_a_file_are_its_lines() {
        let routing = recorded("# two layers\n\n3, 1\n0\t2 # the second\r\n5,4\n  6 7\n");
        routing.check(&[(8, 2), (8, 2)]).unwrap();
        let mut random = fastrand::Rng::with_seed(0);
        let drawn: Vec<Vec<u16>> = (0..5).map(|index| routing.draw(&mut random, index, 8, 2)).collect();
        assert_eq!(drawn, [[1, 3], [0, 2], [4, 5], [6, 7], [1, 3]]);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        assert!(said(Routing::Uniform.check(&[(4, 2), (4, 5)])).contains("could not draw 5 experts: there are 4"));
        assert!(Routing::Uniform.check(&[]).is_ok() && Routing::Uniform.check(&[(4, 4)]).is_ok());
        let cases = [
            ("1 2", &[][..], "the model has no experts"),
            ("1 2\n3 4\n5 6", &[(8, 2), (8, 2)], "3 lines of experts, which are no whole tokens of 2 layers"),
            ("# here\n1 2\n3 8", &[(8, 2)], "line 3 has expert 8, and there are 8; number them from 0 to 7"),
            // The second layer has fewer.
            ("1 2\n\n1 4", &[(8, 2), (4, 2)], "line 3 has expert 4, and there are 4"),
            ("1 2\n1 2 3", &[(8, 2)], "line 2 has 3 experts, and a token picks 2"),
        ];
        for (text, draws, reason) in cases {
            let said = said(recorded(text).check(draws));
            assert!(said.contains(reason) && said.contains("draws.txt"), "no '{reason}' in: {said}");
        }
        let cases = [
            ("1 2\n1 x", "line 2 has \"x\""),
            ("1 -2", "line 1 has \"-2\""),
            ("1 65536", "line 1 has \"65536\""),
            ("\n1;2", "line 2 has \"1;2\""),
            ("\n3 1 3", "line 2 has expert 3 twice"),
            ("# 1 2\n , \n", "no experts stand in it"),
        ];
        for (text, reason) in cases {
            let said = said(Recorded::read("draws.txt", text));
            assert!(said.contains(reason), "no '{reason}' in: {said}");
        }
    }

    #[test]
    fn names_are_read() {
        assert_eq!(Routing::parse("uniform").unwrap(), Routing::Uniform);
        assert_eq!(Routing::parse("zipf:1.2").unwrap(), Routing::Zipf { exponent: 1.2 });
        for wrong in ["zipf:", "zipf:x", "zipf:-1", "zipf:nan", "zipf:inf", "zipf:11"] {
            assert!(said(Routing::parse(wrong)).contains("write a number from 0 to 10, as in zipf:1.2"), "{wrong}");
        }
        for missing in ["nowhere.txt", "", "/"] {
            assert!(said(Routing::parse(missing)).contains("write uniform, zipf:EXPONENT"), "{missing}");
        }
        let path = std::env::temp_dir().join(format!("membar-routing-{}.txt", std::process::id()));
        std::fs::write(&path, "1 0\n").unwrap();
        let routing = Routing::parse(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(routing.unwrap().draw(&mut fastrand::Rng::with_seed(0), 9, 2, 2), [0, 1]);
    }
}
