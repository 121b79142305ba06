export const summarize = (outcome, _lines) => ({ text: JSON.stringify(outcome), summary: outcome })
