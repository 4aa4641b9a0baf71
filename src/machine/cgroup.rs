//! Where the limits of this process's control group lie, in version 1 and 2 of the interface.

use super::sysfs::text;
use std::path::{Component, Path, PathBuf};

/// The directories of this process's control group for one controller, from its own up to the outermost one visible.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cgroup {
    /// One hierarchy for each controller.
    V1(Vec<PathBuf>),
    /// The unified hierarchy.
    V2(Vec<PathBuf>),
}

impl Cgroup {
    /// Finds it below `root` by proc/self/cgroup. In a container without a namespace of its own that names a path that
    /// is not mounted here; walking up ends at the mounted root, which then is the container's group.
    pub(super) fn find(root: &Path, controller: &str) -> Option<Cgroup> {
        let membership = text(root.join("proc/self/cgroup"))?;
        let mount = root.join("sys/fs/cgroup");
        let mut unified = None;
        for line in membership.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                unified = Some(path.to_string());
            } else if controllers.split(',').any(|name| name == controller) {
                let hierarchy =
                    [controllers, controller].map(|name| mount.join(name)).into_iter().find(|dir| dir.is_dir());
                return hierarchy.map(|dir| Cgroup::V1(upwards(&dir, path)));
            }
        }
        let hybrid = mount.join("unified");
        unified.map(|path| Cgroup::V2(upwards(if hybrid.is_dir() { &hybrid } else { &mount }, &path)))
    }
}

fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let names = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
    let mut dirs = vec![mount.to_path_buf()];
    for name in names {
        let deeper = dirs[dirs.len() - 1].join(name);
        dirs.push(deeper);
    }
    dirs.reverse();
    dirs
}
