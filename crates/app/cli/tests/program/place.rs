//! An empty directory and the program in it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An empty directory of its own for one test.
pub struct Place(PathBuf);

/// What a run of the program gave.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new(name: &str) -> Place {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Place(path)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        for name in ["CLUSTER", "SEED", "REPORT", "THREADS", "SERVER", "TOKEN", "TOKEN_FILE", "CA"]
        {
            command.env_remove(format!("TRAINYARD_{name}"));
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        let code = output.status.code().expect("an exit code");
        Ran { code, out: text(output.stdout), err: text(output.stderr) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("a file")
    }

    pub fn read_bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("a file")
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).expect("a file");
    }

    pub fn root(&self) -> &std::path::Path {
        &self.0
    }

    pub fn make_folder(&self, name: &str) {
        fs::create_dir(self.0.join(name)).expect("a directory");
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).expect("a file");
    }

    /// The names of all files, hidden ones too.
    pub fn files(&self) -> Vec<String> {
        self.files_in("")
    }

    /// The names of all files in a folder, hidden ones too.
    pub fn files_in(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(folder)).expect("a directory").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

pub fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

/// Words of a command line; `%` stands for a space within one.
pub fn words(line: &str) -> Vec<&str> {
    // Leaked, because a test lives no longer than its process.
    line.split(' ').map(|word| -> &str { word.replace('%', " ").leak() }).collect()
}
