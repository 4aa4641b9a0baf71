//! Where latency leaves the ground as bandwidth grows.

/// The knee is where a load takes this many times what it takes idle. A convention.
pub const KNEE: f64 = 1.5;

/// The bandwidth at which latency first exceeds [`KNEE`] times that of the point with the least bandwidth, by straight lines
/// between points of bandwidth and latency in any order; `None` when it never does.
pub fn knee(points: &[(f64, f64)]) -> Option<f64> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let limit = points.first()?.1 * KNEE;
    points.windows(2).find(|pair| pair[1].1 > limit).map(|pair| {
        let ((below, low), (above, high)) = (pair[0], pair[1]);
        below + (above - below) * ((limit - low) / (high - low)).clamp(0.0, 1.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_lies_where_the_curve_crosses_the_limit() {
        let curve = [(30e9, 400.0), (0.0, 100.0), (10e9, 110.0), (20e9, 140.0), (25e9, 160.0)];
        assert!((knee(&curve).unwrap() - 22.5e9).abs() < 1.0);
        assert_eq!(knee(&curve[1..4]), None);
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[(1e9, 100.0)]), None);
    }
}
