/** Input of `promtool test rules` for deploy/alerts.yaml. Written as JSON, which is YAML, too. */

interface RuleTest {
  series: Record<string, string>
  /** minutes after the start */
  atMinutes: number
  alertname: string
  /** labels and summaries of the alerts that fire; their other annotations are read from the file */
  fires: Array<{ labels: Record<string, string>; summary: string }>
}

/** @param annotationsOf description and runbook_url of an alert */
export function ruleTestFile(
  rules: string,
  tests: RuleTest[],
  annotationsOf: (alertname: string) => Record<string, string>,
): string {
  return JSON.stringify({
    rule_files: [rules],
    evaluation_interval: '1m',
    tests: tests.map(({ series, atMinutes, alertname, fires }) => ({
      interval: '1m',
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: [
        {
          eval_time: `${atMinutes}m`,
          alertname,
          exp_alerts: fires.map(({ labels, summary }) => ({
            exp_labels: labels,
            exp_annotations: { ...annotationsOf(alertname), summary },
          })),
        },
      ],
    })),
  })
}

/** Accounts with the same problem. The service exports the names of some. */
function brokenAccounts(count: number, named: number): Record<string, string> {
  const series: Record<string, string> = {}
  for (let id = 1; id <= count; id += 1) {
    series[`oa_audience_account_problem{account="${id}",reason="suspended",instance="a"}`] = '3x30'
    if (id <= named)
      series[`oa_audience_account_info{account="${id}",name="Shop ${id}",instance="a"}`] = '1x30'
  }
  return series
}

function failingEndpoints(count: number): Record<string, string> {
  const series: Record<string, string> = {}
  for (let id = 1; id <= count; id += 1) {
    const labels = `endpoint="${id}",account="1",name="Bot ${id}",host="tool.example.com"`
    series[`oa_audience_endpoint_info{${labels}}`] = '1x30'
    series[`oa_audience_endpoint_oldest_pending_seconds{endpoint="${id}",status="active"}`] = '1000x30'
  }
  return series
}

const warning = { severity: 'warning' }
const critical = { severity: 'critical' }
const suspended = { labels: { ...warning, reason: 'suspended' } }
const host = { labels: { ...warning, host: 'tool.example.com' } }
const states = (down: number) => ({
  'oa_audience_database_state{state="down",instance="a"}': `${down}x30`,
  'oa_audience_database_state{state="up",instance="a"}': `${1 - down}x30`,
})

export const RULE_TESTS: RuleTest[] = [
  {
    series: brokenAccounts(302, 5),
    ...{ atMinutes: 16, alertname: 'AccountBroken' },
    fires: [
      {
        ...suspended,
        summary:
          '302 official accounts are broken (suspended): Shop 1 (account 1), Shop 2 (account 2), Shop 3 (account 3), ' +
          'Shop 4 (account 4), Shop 5 (account 5) and others',
      },
    ],
  },
  {
    series: brokenAccounts(1, 1),
    ...{ atMinutes: 16, alertname: 'AccountBroken' },
    fires: [{ ...suspended, summary: '1 official account is broken (suspended): Shop 1 (account 1)' }],
  },
  { series: brokenAccounts(1, 1), atMinutes: 14, alertname: 'AccountBroken', fires: [] },
  {
    // Two instances have read an account before and after it got a new name.
    series: {
      ...brokenAccounts(1, 1),
      'oa_audience_account_info{account="1",name="Tea",instance="b"}': '1x30',
    },
    ...{ atMinutes: 16, alertname: 'AccountBroken' },
    fires: [
      {
        ...suspended,
        summary: '1 official account is broken (suspended): Shop 1 (account 1), Tea (account 1)',
      },
    ],
  },
  {
    series: failingEndpoints(2),
    ...{ atMinutes: 6, alertname: 'EndpointFails' },
    fires: [
      {
        ...host,
        summary:
          '2 endpoints at tool.example.com accepted no delivery for 15 minutes: Bot 1 (endpoint 1), Bot 2 (endpoint 2)',
      },
    ],
  },
  {
    series: states(1),
    ...{ atMinutes: 2, alertname: 'DatabaseDown' },
    fires: [{ labels: critical, summary: 'The database does not respond (affected instances: 1)' }],
  },
  { series: states(0), atMinutes: 2, alertname: 'DatabaseDown', fires: [] },
  {
    series: { up: '1x30' },
    ...{ atMinutes: 3, alertname: 'ServiceAbsent' },
    fires: [{ labels: critical, summary: 'No instance of the service exports metrics' }],
  },
  {
    series: { 'oa_audience_requests_total{route="/api/line/:id",status="503",instance="a"}': '0+10x30' },
    ...{ atMinutes: 12, alertname: 'DeliveriesRefused' },
    fires: [{ labels: critical, summary: 'Deliveries are refused with 503' }],
  },
  {
    series: {
      'oa_audience_heartbeats_total{outcome="failed"}': '0+1x60',
      'oa_audience_heartbeats_total{outcome="accepted"}': '0x60',
    },
    ...{ atMinutes: 30, alertname: 'HeartbeatFails' },
    fires: [{ labels: warning, summary: 'No heartbeat was accepted for 15 minutes' }],
  },
]
