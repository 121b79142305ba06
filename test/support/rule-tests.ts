/** Input of `promtool test rules` for deploy/alerts.yaml. Written as JSON, which is YAML, too. */

/** Labels and summaries of the alerts that fire. Their other annotations are read from the file. */
type Fires = [labels: Record<string, string>, summary: string]
type RuleTest = [alertname: string, minutes: number, series: Record<string, string>, ...fires: Fires[]]

/** @param annotationsOf description and runbook_url of an alert */
export function ruleTestFile(
  rules: string,
  tests: RuleTest[],
  annotationsOf: (alertname: string) => Record<string, string>,
): string {
  return JSON.stringify({
    rule_files: [rules],
    evaluation_interval: '1m',
    tests: tests.map(([alertname, minutes, series, ...fires]) => ({
      interval: '1m',
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: [
        {
          eval_time: `${minutes}m`,
          alertname,
          exp_alerts: fires.map(([labels, summary]) => ({
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
const suspended = { ...warning, reason: 'suspended' }
const states = (down: number) => ({
  'oa_audience_database_state{state="down",instance="a"}': `${down}x30`,
  'oa_audience_database_state{state="up",instance="a"}': `${1 - down}x30`,
})
const refusals = {
  'oa_audience_requests_total{route="/api/line/:id",status="503",instance="a"}': '0+10x30',
}
const failedHeartbeats = {
  'oa_audience_heartbeats_total{outcome="failed"}': '0+1x60',
  'oa_audience_heartbeats_total{outcome="accepted"}': '0x60',
}
/** Two instances have read an account before and after it got a new name. */
const renamed = { 'oa_audience_account_info{account="1",name="Tea",instance="b"}': '1x30' }

export const RULE_TESTS: RuleTest[] = [
  [
    'AccountBroken',
    16,
    brokenAccounts(302, 5),
    [
      suspended,
      '302 official accounts are broken (suspended): Shop 1 (account 1), Shop 2 (account 2), Shop 3 (account 3), ' +
        'Shop 4 (account 4), Shop 5 (account 5) and others',
    ],
  ],
  ['AccountBroken', 14, brokenAccounts(1, 1)],
  [
    'AccountBroken',
    16,
    { ...brokenAccounts(1, 1), ...renamed },
    [suspended, '1 official account is broken (suspended): Shop 1 (account 1), Tea (account 1)'],
  ],
  [
    'EndpointFails',
    6,
    failingEndpoints(2),
    [
      { ...warning, host: 'tool.example.com' },
      '2 endpoints at tool.example.com accepted no delivery for 15 minutes: Bot 1 (endpoint 1), Bot 2 (endpoint 2)',
    ],
  ],
  ['DatabaseDown', 2, states(1), [critical, 'The database does not respond (affected instances: 1)']],
  ['DatabaseDown', 2, states(0)],
  ['ServiceAbsent', 3, { up: '1x30' }, [critical, 'No instance of the service exports metrics']],
  ['DeliveriesRefused', 12, refusals, [critical, 'Deliveries are refused with 503']],
  ['HeartbeatFails', 30, failedHeartbeats, [warning, 'No heartbeat was accepted for 15 minutes']],
]
