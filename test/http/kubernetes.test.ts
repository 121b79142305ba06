/** deploy/kubernetes.yaml: Kubernetes' own types accept it, and what it names exists. */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Deployment } from 'kubernetes-types/apps/v1.d.ts'
import type { Service } from 'kubernetes-types/core/v1.d.ts'
import type { PodDisruptionBudget } from 'kubernetes-types/policy/v1.d.ts'
import { expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { readConfig } from '../../src/config/config.ts'
import { serviceVersion } from '../../src/config/package.ts'
import { VARIABLES, type Variable } from '../../src/config/variables.ts'
import { temporaryDirectory } from '../support/process.ts'
import { setUpService } from '../support/service.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const manifest = readFileSync(join(ROOT, 'deploy/kubernetes.yaml'), 'utf8')
const documents: unknown[] = parseAllDocuments(manifest, { strict: true }).map((document) => document.toJS())
const [deployment, service, budget] = documents as [Deployment, Service, PodDisruptionBudget]
const pod = deployment.spec?.template
const [container] = pod?.spec?.containers ?? []

const TYPES = { Deployment: 'apps/v1', Service: 'core/v1', PodDisruptionBudget: 'policy/v1' }

/** Returns what TypeScript reports. A literal may only have fields that its type has. */
async function faultsOf(objects: unknown[]): Promise<string> {
  const kinds = Object.entries(TYPES).map(
    ([kind, group]) => `import type { ${kind} } from 'kubernetes-types/${group}'`,
  )
  const literals = objects.map((object, i) => {
    const { kind } = object as { kind: string }
    return `export const object${i}: ${kind} = ${JSON.stringify(object)}`
  })
  const directory = temporaryDirectory()
  writeFileSync(join(directory, 'manifest.ts'), [...kinds, ...literals].join('\n'))
  const paths = { 'kubernetes-types/*': [join(ROOT, 'node_modules/kubernetes-types/*')] }
  const compilerOptions = { noEmit: true, strict: true, module: 'nodenext', types: [], paths }
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['manifest.ts'] }))
  const run = promisify(execFile)(join(ROOT, 'node_modules/.bin/tsc'), ['--project', directory])
  return run.then(
    ({ stdout }) => stdout,
    ({ stdout }: { stdout: string }) => stdout,
  )
}

it('Kubernetes has every field of the manifest, with these types', async () => {
  expect(documents.map((document) => (document as { kind: string }).kind)).toEqual(Object.keys(TYPES))
  expect(await faultsOf(documents)).toBe('')
})

it('a field that Kubernetes does not have is reported', async () => {
  const { spec } = service
  const wrong = { ...service, spec: { ...spec, selectors: {} } }
  expect(await faultsOf([wrong])).toMatch(/'"selectors"' does not exist in type 'ServiceSpec'/)
})

it('the environment has variables of the service, and its secrets by reference', () => {
  const variables: Variable<unknown>[] = Object.values(VARIABLES)
  const env = container?.env ?? []
  for (const { name, value, valueFrom } of env) {
    const variable = variables.find((each) => each.name === name)
    expect(variable, name).toBeDefined()
    expect(valueFrom !== undefined, name).toBe(variable?.isSecret === true)
    expect(value !== undefined, name).toBe(variable?.isSecret === undefined)
    if (valueFrom !== undefined)
      expect(valueFrom, name).toEqual({ secretKeyRef: expect.objectContaining({ name: 'oa-audience' }) })
  }
  const values = env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]]))
  const { console: consoleConfig, metricsPort, port } = readConfig(Object.fromEntries(values))
  const named = Object.fromEntries(container?.ports?.map((each) => [each.name, each.containerPort]) ?? [])
  expect(named).toEqual({ http: port, console: consoleConfig?.port, metrics: metricsPort })
})

it('the probes request routes that exist, on the port of the service', async () => {
  const { service: running } = await setUpService()
  for (const probe of [container?.livenessProbe, container?.readinessProbe]) {
    expect(probe?.httpGet?.port).toBe('http')
    expect((await running.call('GET', probe?.httpGet?.path ?? '')).status).toBe(200)
  }
  expect(container?.livenessProbe?.httpGet?.path).not.toBe(container?.readinessProbe?.httpGet?.path)
})

it('the Service and the disruption budget select the pods, of which one at least runs', () => {
  const labels = pod?.metadata?.labels
  expect(labels).toBeDefined()
  const selectors = [service.spec?.selector, budget.spec?.selector?.matchLabels]
  for (const selector of [deployment.spec?.selector.matchLabels, ...selectors])
    expect(selector).toEqual(labels)
  expect(service.spec?.ports?.map(({ targetPort }) => targetPort)).toEqual(['http'])
  expect([deployment.spec?.replicas, budget.spec?.maxUnavailable]).toEqual([2, 1])
  expect(deployment.spec?.strategy?.rollingUpdate?.maxUnavailable).toBe(0)
})

it('the pod meets the restricted Pod Security Standard, and cannot write to its image', () => {
  expect(pod?.spec?.securityContext).toEqual({
    runAsNonRoot: true,
    seccompProfile: { type: 'RuntimeDefault' },
  })
  expect(container?.securityContext).toEqual({
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ['ALL'] },
  })
  expect(pod?.spec?.volumes).toBeUndefined()
})

it('the grace time covers the delay before SIGTERM and the longest shutdown, and the version is this one', () => {
  const [, seconds] = container?.lifecycle?.preStop?.exec?.command ?? []
  // The service ends within 10 s. docs/operate/run.md asks for 15 s.
  expect(pod?.spec?.terminationGracePeriodSeconds).toBe(Number(seconds) + 15)
  expect(container?.image).toMatch(`:${serviceVersion}`)
})
