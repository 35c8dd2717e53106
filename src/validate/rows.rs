//! Published training runs: one JSON object a line.

use serde::Deserialize;
use serde_json::Value;

/// A number that somebody measured.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Name, unique in a file.
    pub id: String,
    /// Chip, by our name or the framework's.
    pub chip: String,
    /// Chips, 0 if nobody said.
    #[serde(default)]
    pub chips: u32,
    /// Shape of a slice and how many there are, e.g. `16x16 x4 slices`.
    #[serde(default)]
    pub topology: String,
    /// What ran, or `ref` with the id of the row that says it.
    #[serde(alias = "program")]
    pub config: Value,
    /// What was measured.
    pub metric: String,
    /// The number.
    pub value: f64,
    /// `exact` if the source gives number and configuration, `partly` if something is missing or newer than the run.
    #[serde(default)]
    pub confidence: String,
    /// How FLOPs were counted, where the source lets one know: `causal` or `full`.
    #[serde(default)]
    pub counting: Option<String>,
    /// Where it is published.
    #[serde(default)]
    pub source: String,
}

impl Row {
    /// Reads a file; empty lines are skipped.
    ///
    /// # Errors
    /// The number of the first line that does not parse, with what is wrong.
    pub fn read(text: &str) -> Result<Vec<Row>, String> {
        let lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        lines.map(|(i, l)| serde_json::from_str(l).map_err(|e| format!("line {}: {e}", i + 1))).collect()
    }

    /// Whether it is a metric of training that is compared.
    pub fn is_compared(&self) -> bool {
        ["step_time", "MFU", "tokens_per_s_per_chip", "model_tflops_per_chip"].contains(&self.metric.as_str())
    }

    /// The row that says what ran: itself or the one it refers to.
    pub fn origin<'a>(&'a self, all: &'a [Row]) -> Option<&'a Row> {
        match self.config.get("ref").and_then(Value::as_str) {
            None => Some(self),
            Some(id) => all.iter().find(|r| r.id == id && r.config.get("ref").is_none()),
        }
    }
}
