//! Where latency leaves the ground as bandwidth grows.

/// The knee is where a load takes this many times what it takes idle. A convention.
pub const KNEE: f64 = 1.5;

/// The bandwidth from which on latency stays above [`KNEE`] times `idle_ns`, by straight lines between points of bandwidth and
/// latency in any order: a single slow point below others that are not slow is a disturbance and no knee. `None` when there is
/// no such bandwidth.
pub fn knee(idle_ns: f64, points: &[(f64, f64)]) -> Option<f64> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let limit = idle_ns * KNEE;
    let first = points.iter().rposition(|(_, ns)| *ns <= limit)?;
    let ((below, low), (above, high)) = (points[first], *points.get(first + 1)?);
    Some(below + (above - below) * ((limit - low) / (high - low)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_lies_where_the_curve_crosses_the_limit() {
        let curve = [(30e9, 400.0), (0.0, 100.0), (10e9, 110.0), (20e9, 140.0), (25e9, 160.0)];
        assert!((knee(100.0, &curve).unwrap() - 22.5e9).abs() < 1.0);
        assert_eq!(knee(100.0, &curve[1..4]), None);
        assert_eq!(knee(100.0, &[]), None);
        assert_eq!(knee(100.0, &[(1e9, 100.0)]), None);
        // A disturbed point on the way changes nothing.
        let disturbed = [&curve[..], &[(5e9, 900.0)]].concat();
        assert_eq!(knee(100.0, &disturbed), knee(100.0, &curve));
    }
}
