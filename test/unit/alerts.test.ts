/** deploy/alerts.yaml, docs/runbook.md and the dashboard as texts. faults/prometheus.test.ts evaluates their queries. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { hostLabel, nameLabel } from '../../src/observability/stored-metrics.ts'
import { ALERTS } from '../support/alerts.ts'

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8')

it('gives each alert a severity, a summary, a description and a section of the runbook', () => {
  for (const { name, fieldOf } of ALERTS) {
    expect(['critical', 'warning', 'info'], name).toContain(fieldOf('severity'))
    expect(fieldOf('summary'), name).toBeDefined()
    expect(fieldOf('description'), name).toBeDefined()
    expect(fieldOf('runbook_url'), name).toBe(`docs/runbook.md#${name.toLowerCase()}`)
  }
  const sections = [...read('docs/runbook.md').matchAll(/^## (.+)$/gm)].map(([, title]) => title)
  expect(sections.toSorted()).toEqual(ALERTS.map(({ name }) => name).toSorted())
})

it('inhibits only alerts that exist', () => {
  const names = ALERTS.map(({ name }) => name)
  const inhibited = [...read('deploy/alertmanager.yaml').matchAll(/alertname =~? "?([A-Za-z|]+)"?/g)]
  expect(inhibited.length).toBeGreaterThan(0)
  for (const [, mentioned = ''] of inhibited)
    for (const name of mentioned.split('|')) expect(names).toContain(name)
})

type Panel = {
  type: string
  title: string
  datasource?: unknown
  fieldConfig: { defaults: { unit?: string } }
  targets: Array<{ refId: string; expr: string }>
}

it('has a dashboard whose panels have a unit, and the chosen data source and job', () => {
  const { panels, templating } = JSON.parse(read('deploy/grafana-dashboard.json')) as {
    panels: Panel[]
    templating: { list: Array<{ name: string }> }
  }
  expect(templating.list.map(({ name }) => name)).toEqual(['datasource', 'job'])
  for (const { type, title, datasource, fieldConfig, targets } of panels) {
    if (type === 'row') continue
    expect(datasource, title).toEqual({ type: 'prometheus', uid: `\${datasource}` })
    expect(fieldConfig.defaults.unit, title).toBeDefined()
    expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length)
    for (const { expr } of targets) {
      const metrics = expr.match(/\b(oa_audience|process|nodejs)_\w+/g) ?? []
      expect(expr.match(/\{job=~"\$job"/g), expr).toHaveLength(metrics.length)
    }
  }
})

it('exports names of tenants in one short line without mentions, tags and changes of direction', () => {
  expect(nameLabel(' Corner\n\tCoffee\u2028 ')).toBe('Corner Coffee')
  expect(nameLabel('<!channel> @here `x`')).toBe("‹!channel› ＠here 'x'")
  expect(nameLabel('abc\u202Edef\u2066')).toBe('abcdef')
  expect(nameLabel('ร้านกาแฟ さくら 👩‍🍳')).toBe('ร้านกาแฟ さくら 👩‍🍳')
  expect([...nameLabel('🍳'.repeat(1_000))]).toHaveLength(60)
  expect(nameLabel('[Sign in](https://evil.example)')).not.toMatch(/\]\(|:\/\/|\.e/)
  expect(nameLabel('a\uD800')).toBe('a\uFFFD')
  expect(hostLabel('https://tool.example.com:8443/hooks/TOKEN?key=1')).toBe('tool.example.com:8443')
  expect(hostLabel('nonsense')).toBe('')
})
