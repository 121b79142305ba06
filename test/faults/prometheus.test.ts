/** deploy/alerts.yaml and the dashboard in a real Prometheus that scrapes a running service. */
import { spawn, spawnSync } from 'node:child_process'
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../tools/prove/service.ts'
import { textMessage } from '../../tools/simulator/events.ts'
import { ALERTS, RULES_FILE } from '../support/alerts.ts'
import { addTenant, type Tenant } from '../support/database.ts'
import { eventually, startHealthy, temporaryDirectory, writeTemporaryFile } from '../support/process.ts'
import { createEncrypted } from '../support/secret-keys.ts'
import { signedDelivery } from '../support/service.ts'

const DASHBOARD = new URL('../../deploy/grafana-dashboard.json', import.meta.url)

const isInstalled = (program: string) => spawnSync(program, ['--version']).status === 0
const hasPrometheus = isInstalled('prometheus') && isInstalled('promtool')
if (!hasPrometheus) console.warn('\n!!! prometheus is not installed: alerts and dashboard are NOT tested\n')
const hasAlertmanager = isInstalled('amtool')
if (!hasAlertmanager) console.warn('\n!!! amtool is not installed: deploy/alertmanager.yaml is NOT tested\n')

/** Their series exist only in states that this test does not make: a standby, a replica. */
const PANELS_WITHOUT_DATA = ['State of the standbys', 'Replica lag']
/** Its series exist only after responses that this test does not cause. */
const SELECTOR_WITHOUT_DATA = /status="503"/
/** Alerts whose condition this test causes. */
const PENDING = ['AccountBroken', 'EndpointFails', 'EndpointPaused', 'EndpointDeliveriesFailed']

const NAME = 'Corner "Coffee" \\ <!here>'
const SHOWN_NAME = 'Corner "Coffee" \\ ‹!here›'

const alerts = ALERTS.map(({ name, fieldOf }) => ({ name, expr: fieldOf('expr') ?? '', fieldOf }))

/** Series of 30 minutes, and the summary of the one alert that fires, or null. */
type RuleTest = [
  alert: string,
  minutes: number,
  series: Record<string, string>,
  summary: string | null,
  labels?: object,
]

/** Accounts with the same problem. The service exports the names of five. */
const brokenAccounts = (count: number) =>
  Object.fromEntries(
    Array.from({ length: count }, (_, i) => i + 1).flatMap((id) => [
      [`oa_audience_account_problem{account="${id}",reason="suspended",instance="a"}`, '3x30'],
      ...(id > 5
        ? []
        : [[`oa_audience_account_info{account="${id}",name="Shop ${id}",instance="a"}`, '1x30']]),
    ]),
  )

const RULE_TESTS: RuleTest[] = [
  [
    ...(['AccountBroken', 16, brokenAccounts(302)] as const),
    '302 official accounts are broken (suspended): Shop 1 (account 1), Shop 2 (account 2), Shop 3 (account 3), ' +
      'Shop 4 (account 4), Shop 5 (account 5) and others',
    { severity: 'warning', reason: 'suspended' },
  ],
  ['AccountBroken', 14, brokenAccounts(1), null],
  [
    // Two instances have read an account before and after it got a new name.
    ...(['AccountBroken', 16] as const),
    { ...brokenAccounts(1), 'oa_audience_account_info{account="1",name="Tea",instance="b"}': '1x30' },
    '1 official account is broken (suspended): Shop 1 (account 1), Tea (account 1)',
    { severity: 'warning', reason: 'suspended' },
  ],
  [
    'ServiceAbsent',
    3,
    { up: '1x30' },
    'No instance of the service exports metrics',
    { severity: 'critical' },
  ],
  [
    ...(['DeliveriesRefused', 12] as const),
    { 'oa_audience_requests_total{route="/api/line/:id",status="503",instance="a"}': '0+10x30' },
    'Deliveries are refused with 503',
    { severity: 'critical' },
  ],
]

/** Input of `promtool test rules`, written as JSON, which is YAML, too. */
const ruleTests = () => ({
  rule_files: [RULES_FILE],
  evaluation_interval: '1m',
  tests: RULE_TESTS.map(([alertname, minutes, series, summary, exp_labels]) => {
    const fieldOf = alerts.find(({ name }) => name === alertname)?.fieldOf
    const text = (key: string) => (fieldOf?.(key) ?? '').replace(/^'(.*)'$/, '$1')
    const exp_annotations = { summary, description: text('description'), runbook_url: text('runbook_url') }
    return {
      interval: '1m',
      input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
      alert_rule_test: [
        {
          ...{ eval_time: `${minutes}m`, alertname },
          exp_alerts: summary === null ? [] : [{ exp_labels, exp_annotations }],
        },
      ],
    }
  }),
})

const panels = (
  JSON.parse(readFileSync(DASHBOARD, 'utf8')) as {
    panels: Array<{ title: string; targets?: Array<{ expr: string }> }>
  }
).panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr }) => ({ title, expr: expr.replaceAll('$job', '.+') })),
)

it.runIf(hasPrometheus)(
  'promtool accepts the rules, and finds one alert for each cause, with the names of five accounts',
  () => {
    const path = writeTemporaryFile('tests.yaml', JSON.stringify(ruleTests()))
    for (const args of [
      ['check', 'rules', RULES_FILE],
      ['test', 'rules', path],
    ]) {
      const { status, stdout, stderr } = spawnSync('promtool', args, { encoding: 'utf8' })
      expect(status, stdout + stderr).toBe(0)
    }
  },
)

it.runIf(hasAlertmanager)(
  'amtool accepts deploy/alertmanager.yaml and routes critical alerts on call',
  () => {
    const config = fileURLToPath(new URL('../../deploy/alertmanager.yaml', import.meta.url))
    const amtool = (...args: string[]) => spawnSync('amtool', args, { encoding: 'utf8' }).stdout.trim()
    expect(amtool('check-config', config)).toContain('SUCCESS')
    const receiverOf = (severity: string) =>
      amtool('config', 'routes', 'test', `--config.file=${config}`, `severity=${severity}`)
    expect(['critical', 'warning', 'info'].map(receiverOf)).toEqual(['on-call', 'team', 'team'])
  },
)

it.runIf(hasPrometheus)(
  'evaluates every alert and panel on the metrics of a service',
  async () => {
    const { url, query, api } = await startScraped()
    // The queries of the summaries have run, too, when Prometheus has evaluated the rules on the accounts and endpoints.
    const pending = await eventually(
      () => api<{ alerts: Alert[] }>('alerts'),
      ({ alerts: found }) => PENDING.every((name) => found?.some(({ labels }) => labels.alertname === name)),
      30_000,
    )
    const summaryOf = (name: string) =>
      pending.alerts.find(({ labels }) => labels.alertname === name)?.annotations.summary
    expect(summaryOf('AccountBroken')).toBe(
      `1 official account is broken (no_channel_secret): ${SHOWN_NAME} (account 2)`,
    )
    expect(summaryOf('EndpointFails')).toMatch(
      /^1 endpoint at 127.0.0.1:9 did not accept a delivery .*: Bot /,
    )
    expect(summaryOf('EndpointPaused')).toContain('1 endpoint at tool.example.com paused')

    const { groups } = await api<{ groups: Array<{ rules: Rule[] }> }>('rules')
    const unhealthy = groups.flatMap(({ rules }) => rules).filter(({ health }) => health !== 'ok')
    expect(unhealthy, url).toEqual([])

    for (const { title, expr } of panels) {
      const isExpected = !PANELS_WITHOUT_DATA.includes(title)
      const result = await eventually(
        () => query(expr),
        ({ length }) => !isExpected || length > 0,
        10_000,
      )
      expect(result.length > 0, `${title}: ${expr}`).toBe(isExpected)
    }
    for (const { name, expr } of alerts) {
      await query(expr)
      const selectors = expr.match(/\b(?:oa_audience_|nodejs_|up\b)\w*(?:\{[^}]*\})?/g) ?? []
      expect(selectors.length, name).toBeGreaterThan(0)
      for (const selector of selectors) {
        if (SELECTOR_WITHOUT_DATA.test(selector)) continue
        // A state that is not the present one is 0.
        expect((await query(selector)).length, `${name}: ${selector}`).toBeGreaterThan(0)
      }
    }
    await expectLabels(query)
  },
  90_000,
)

type Query = (expr: string) => Promise<Array<{ metric: Record<string, string> }>>
interface Alert {
  labels: Record<string, string>
  annotations: Record<string, string>
}
interface Rule {
  name: string
  health: string
  lastError?: string
}

/** Every label in `by (…)` and `on (…)` is one of the exported series. */
async function expectLabels(query: Query) {
  for (const { expr } of [...alerts, ...panels]) {
    const names = [...expr.matchAll(/\b(?:by|on) \(([^)]+)\)/g)].flatMap(([, list = '']) => list.split(', '))
    const metrics = [...new Set(expr.match(/\b(?:oa_audience|nodejs|process)_\w+/g) ?? [])]
    const series = (await Promise.all(metrics.map((metric) => query(metric)))).flat()
    if (series.length === 0) continue
    for (const name of names)
      expect(
        series.some(({ metric }) => name in metric),
        `${expr}: ${name}`,
      ).toBe(true)
  }
}

async function startScraped() {
  const { plain, env, database } = await createEncrypted()
  const tenant = await addTenant(database)
  await addProblems(plain, tenant)
  const [metricsPort, port] = [await freePort(), await freePort()]
  const service = await startHealthy({
    ...{ ...env, METRICS_PORT: String(metricsPort), LINE_API_URL: 'http://127.0.0.1:9' },
    ERASURE_LEDGER: temporaryDirectory(),
  })
  const directory = temporaryDirectory()
  copyFileSync(RULES_FILE, join(directory, 'alerts.yaml'))
  writeFileSync(
    join(directory, 'prometheus.yml'),
    JSON.stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: ['alerts.yaml'],
      scrape_configs: [
        { job_name: 'oa-audience', static_configs: [{ targets: [`127.0.0.1:${metricsPort}`] }] },
      ],
    }),
  )
  const prometheus = spawn(
    'prometheus',
    [
      '--config.file=prometheus.yml',
      '--storage.tsdb.path=data',
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=error',
    ],
    { cwd: directory, stdio: ['ignore', 'ignore', 'inherit'] },
  )
  const exited = new Promise((resolve) => prometheus.once('exit', resolve))
  onTestFinished(async () => {
    prometheus.kill('SIGTERM')
    await exited
  })
  const url = `http://127.0.0.1:${port}`
  const api = async <T>(path: string): Promise<T> => {
    const answer = (await (await fetch(`${url}/api/v1/${path}`)).json()) as { data: T }
    expect(answer, path).toMatchObject({ status: 'success' })
    expect(answer, path).not.toHaveProperty('warnings')
    return answer.data
  }
  const query: Query = async (expr) =>
    (await api<{ result: Awaited<ReturnType<Query>> }>(`query?query=${encodeURIComponent(expr)}`)).result
  await expect.poll(() => query('up')).not.toEqual([])
  const deliver = async (signature: Record<string, string>) => {
    const { path, init } = signedDelivery(tenant, [textMessage('U1', 'hello')])
    await fetch(service.url + path, { ...init, headers: { ...init.headers, ...signature } })
  }
  await deliver({})
  await deliver({ 'x-line-signature': 'wrong' })
  return { url, query, api }
}

/** An account without a channel secret, and endpoints that fail, are paused, and have failed. */
async function addProblems(database: Parameters<typeof addTenant>[0], { accountId, organizationId }: Tenant) {
  await database.query('insert into official_account (organization_id, name) values ($1, $2)', [
    organizationId,
    NAME,
  ])
  await database.query(
    `with added as (
       insert into endpoint (channel_oa_id, name, url, status, allow_private_network)
       values ($1, 'Bot', 'http://127.0.0.1:9/?token=x', 'active', true), ($1, 'Chat', 'https://tool.example.com/a', 'paused', false)
       returning id, status
     )
     insert into endpoint_delivery (channel_oa_id, endpoint_id, created_at, due_at, failed_at)
     select $1, id, now() - interval '1 hour', now() + interval '1 hour', failed_at
       from added, unnest(array[null, case status when 'active' then now() end]) failed_at`,
    [accountId],
  )
}
