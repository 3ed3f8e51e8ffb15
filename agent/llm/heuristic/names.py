"""Names that snippets use without bringing them, and where each comes from."""

from __future__ import annotations

MODULES: dict[str, str] = {
    "np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "mpl": "matplotlib", "tf": "tensorflow", "nd": "numpy",
    "nx": "networkx", "sns": "seaborn", "sm": "statsmodels.api", "sp": "scipy", "dt": "datetime", "mp": "multiprocessing",
    "ET": "xml.etree.ElementTree", "ElementTree": "xml.etree.ElementTree", "etree": "lxml.etree",
    "minidom": "xml.dom.minidom", "th": "torch", "F": "torch.nn.functional", "nn": "torch.nn", "K": "keras.backend",
    "simplejson": "json", "ujson": "json", "std_json": "json", "cPickle": "pickle", "path": "os.path", "osp": "os.path",
    "op": "operator", "it": "itertools", "mock": "unittest.mock", "tk": "tkinter", "Tk": "tkinter", "pkg": "pkgutil",
    "pylab": "matplotlib.pylab", "stats": "scipy.stats", "ndimage": "scipy.ndimage", "signal": "signal",
    "xr": "xarray", "la": "numpy.linalg", "spatial": "scipy.spatial", "sparse": "scipy.sparse", "sqla": "sqlalchemy",
}  # fmt: skip
"""Module that an alias means; used where attributes of the name are read."""

THIRD_PARTY = frozenset(
    "numpy pandas matplotlib scipy six requests yaml pytz dateutil PIL cv2 networkx sklearn torch tensorflow keras flask "
    "django jinja2 lxml psutil h5py boto3 redis pymongo sqlalchemy psycopg2 skimage shapely simplejson chaospy colorama "
    "click attr docker paramiko serial zmq tornado aiohttp bs4 docutils pygments nltk gensim sympy tqdm termcolor toml "
    "markdown numba astropy xarray dask pyparsing magic chardet ujson msgpack Crypto nacl OpenGL wx pygame gi".split()
)
"""Modules from outside the standard library that go by their own name."""

CLASS_OR_MODULE: dict[str, frozenset[str]] = {
    "datetime": frozenset(
        "now utcnow today strptime fromtimestamp utcfromtimestamp combine min max fromisoformat".split()
    ),
    "time": frozenset({"min", "max"}),
    "StringIO": frozenset({""}),
}
"""Attributes that show a name to be the class of the module of the same name, rather than the module."""

MEMBERS: dict[str, str] = {
    name: module
    for module, names in {
        "collections": "defaultdict OrderedDict namedtuple Counter deque ChainMap",
        "datetime": "datetime date timedelta timezone tzinfo",
        "time": "sleep time perf_counter strftime localtime gmtime mktime monotonic strptime",
        "calendar": "monthrange timegm",
        "functools": "reduce wraps partial lru_cache total_ordering cmp_to_key singledispatch update_wrapper",
        "itertools": "chain islice product permutations combinations groupby zip_longest cycle count takewhile starmap tee "
        "accumulate repeat dropwhile",
        "operator": "itemgetter attrgetter mul add sub or_ xor",
        "contextlib": "contextmanager closing suppress redirect_stdout ExitStack",
        "copy": "deepcopy copy",
        "math": "sqrt sin cos tan asin acos atan atan2 radians degrees pi exp log log10 log2 floor ceil hypot isnan gcd "
        "factorial fsum pow fabs isinf",
        "decimal": "Decimal ROUND_HALF_UP ROUND_DOWN InvalidOperation",
        "fractions": "Fraction",
        "random": "randint choice shuffle sample uniform randrange gauss choices",
        "bisect": "bisect_left bisect_right bisect insort insort_left insort_right",
        "heapq": "heappush heappop heapify nlargest nsmallest",
        "pathlib": "Path PurePath",
        "os": "environ getcwd listdir makedirs getenv walk unlink remove stat devnull getpid linesep urandom chdir",
        "os.path": "join exists isfile isdir dirname basename abspath expanduser splitext realpath normpath getsize "
        "getmtime relpath",
        "io": "StringIO BytesIO TextIOWrapper IOBase",
        "re": "findall sub IGNORECASE",
        "json": "dumps loads JSONDecodeError JSONEncoder",
        "pprint": "pformat pprint",
        "subprocess": "Popen PIPE STDOUT check_output check_call CalledProcessError",
        "threading": "Thread Lock Event Timer RLock current_thread",
        "multiprocessing": "Process Pool cpu_count",
        "queue": "Queue Empty",
        "inspect": "getmembers isclass isfunction signature Parameter getsource ismethod currentframe isabstract",
        "types": "FunctionType MethodType ModuleType GeneratorType SimpleNamespace LambdaType",
        "traceback": "format_exc print_exc",
        "textwrap": "dedent wrap fill indent",
        "string": "ascii_letters ascii_lowercase ascii_uppercase digits punctuation Template printable",
        "struct": "unpack pack calcsize",
        "binascii": "hexlify unhexlify",
        "base64": "b64encode b64decode",
        "hashlib": "md5 sha1 sha256",
        "uuid": "uuid4 UUID uuid1",
        "urllib.parse": "urlparse urlencode quote unquote urljoin urlsplit urlunsplit urlunparse parse_qs quote_plus parse_qsl",
        "urllib.request": "urlopen Request urlretrieve",
        "urllib.error": "HTTPError URLError",
        "html": "escape unescape",
        "tempfile": "NamedTemporaryFile mkdtemp mkstemp TemporaryDirectory gettempdir",
        "shutil": "rmtree copyfile copytree move which",
        "zipfile": "ZipFile ZIP_DEFLATED",
        "csv": "DictReader DictWriter",
        "enum": "Enum IntEnum",
        "abc": "ABC ABCMeta abstractmethod",
        "dataclasses": "dataclass",
        "importlib": "import_module",
        "distutils.spawn": "find_executable",
        "ctypes": "c_ubyte c_int c_char_p byref c_uint8 create_string_buffer",
        "keyword": "iskeyword",
        "argparse": "ArgumentParser Namespace ArgumentTypeError",
        "unittest": "TestCase TestSuite TextTestRunner",
        "unittest.mock": "Mock MagicMock patch",
        "xml.dom.minidom": "parseString",
        "email.mime.text": "MIMEText",
        "email.mime.multipart": "MIMEMultipart",
        "collections.abc": "Mapping MutableMapping Hashable",
        "numpy": "zeros ones arange linspace vectorize ndarray asarray",
        "numpy.linalg": "norm",
        "numpy.random": "randn",
        "pandas": "DataFrame Series read_csv Timestamp",
        "matplotlib.colors": "LinearSegmentedColormap ListedColormap",
        "bs4": "BeautifulSoup",
        "PIL": "Image ImageDraw ImageFont ImageOps",
        "dateutil.relativedelta": "relativedelta",
    }.items()
    for name in names.split()
}
"""Module that a name is imported from; used where the name itself is called or read."""

OLD_NAMES: dict[str, str] = {
    "unicode": "unicode = str",
    "basestring": "basestring = str",
    "long": "long = int",
    "unichr": "unichr = chr",
    "xrange": "xrange = range",
    "buffer": "buffer = memoryview",
    "file": "file = open",
    "unicode_literals": "unicode_literals = True",
    "cmp": "cmp = lambda one, other: (one > other) - (one < other)",
    "execfile": "execfile = lambda path: exec(open(path).read())",
    "raw_input": "raw_input = lambda prompt='': '7'",
    "input": "input = lambda prompt='': '7'",
    "apply": "apply = lambda function, values=(), named={}: function(*values, **named)",
    "intern": "from sys import intern",
    "reload": "from importlib import reload",
    "reduce": "from functools import reduce",
    "izip": "izip = zip",
    "imap": "imap = map",
    "ifilter": "ifilter = filter",
    "izip_longest": "from itertools import zip_longest as izip_longest",
    "iteritems": "iteritems = lambda mapping: iter(mapping.items())",
    "itervalues": "itervalues = lambda mapping: iter(mapping.values())",
    "iterkeys": "iterkeys = lambda mapping: iter(mapping.keys())",
    "viewitems": "viewitems = lambda mapping: mapping.items()",
    "string_types": "string_types = (str,)",
    "integer_types": "integer_types = (int,)",
    "text_type": "text_type = str",
    "binary_type": "binary_type = bytes",
    "bytes_type": "bytes_type = bytes",
    "unicode_type": "unicode_type = str",
    "STRING_TYPE": "STRING_TYPE = str",
    "STRING_TYPES": "STRING_TYPES = (str,)",
    "PY2": "PY2 = False",
    "IS_PY2": "IS_PY2 = False",
    "PY3": "PY3 = True",
    "IS_PY3": "IS_PY3 = True",
    "version_info": "from sys import version_info",
    "WindowsError": "WindowsError = OSError",
    "urllib2": "import urllib.request as urllib2",
    "StringIO": "from io import StringIO",
    "cStringIO": "import io as cStringIO",
    "ConfigParser": "import configparser as ConfigParser",
    "Tkinter": "import tkinter as Tkinter",
    "httplib": "import http.client as httplib",
    "__version__": "__version__ = '1.0.0'",
    "_": "_ = lambda text: text",
    "logger": "import logging; logger = logging.getLogger('given')",
    "log": "import logging; log = logging.getLogger('given')",
    "LOG": "import logging; LOG = logging.getLogger('given')",
    "LOGGER": "import logging; LOGGER = logging.getLogger('given')",
    "_logger": "import logging; _logger = logging.getLogger('given')",
    "_LOGGER": "import logging; _LOGGER = logging.getLogger('given')",
}
"""Line that provides a name of Python 2, of its bridges, or of a module's usual preamble."""

OLD_MODULES: dict[str, str] = {
    "urllib2": "urllib.request", "StringIO": "io", "cStringIO": "io", "ConfigParser": "configparser", "Queue": "queue",
    "cPickle": "pickle", "urlparse": "urllib.parse", "httplib": "http.client", "HTMLParser": "html.parser",
    "__builtin__": "builtins", "Tkinter": "tkinter", "SocketServer": "socketserver", "BaseHTTPServer": "http.server",
    "commands": "subprocess", "thread": "_thread", "copy_reg": "copyreg", "Cookie": "http.cookies", "anydbm": "dbm",
    "xmlrpclib": "xmlrpc.client", "cookielib": "http.cookiejar", "imp": "importlib", "htmlentitydefs": "html.entities",
}  # fmt: skip
"""Module of Python 3 for a module of Python 2 that a snippet imports."""

MOVED: dict[tuple[str, str], str] = {
    **{("collections", name): f"__import__('collections.abc').abc.{name}" for name in (
        "Mapping MutableMapping Iterable Iterator Callable Sequence MutableSequence Set MutableSet Hashable Sized "
        "Container MappingView KeysView ValuesView ItemsView Generator").split()},
    ("itertools", "izip"): "zip", ("itertools", "imap"): "map", ("itertools", "ifilter"): "filter",
    ("itertools", "izip_longest"): "__import__('itertools').zip_longest",
    ("inspect", "getargspec"): "__import__('inspect').getfullargspec",
    ("time", "clock"): "__import__('time').perf_counter",
    ("base64", "encodestring"): "__import__('base64').encodebytes",
    ("base64", "decodestring"): "__import__('base64').decodebytes",
    ("fractions", "gcd"): "__import__('math').gcd", ("cgi", "escape"): "__import__('html').escape",
    ("os", "getcwdu"): "__import__('os').getcwd", ("os", "errno"): "__import__('errno')", ("sys", "maxint"): "2 ** 63 - 1",
    ("string", "letters"): "__import__('string').ascii_letters", ("string", "maketrans"): "str.maketrans",
    ("string", "lowercase"): "__import__('string').ascii_lowercase",
    ("string", "uppercase"): "__import__('string').ascii_uppercase",
    ("string", "join"): "(lambda words, separator=' ': separator.join(words))",
    ("urllib", "urlencode"): "__import__('urllib.parse').parse.urlencode",
    ("urllib", "quote"): "__import__('urllib.parse').parse.quote",
    ("urllib", "unquote"): "__import__('urllib.parse').parse.unquote",
    ("urllib", "urlopen"): "__import__('urllib.request').request.urlopen",
    ("urllib", "urlretrieve"): "__import__('urllib.request').request.urlretrieve",
    ("types", "StringTypes"): "(str,)", ("types", "StringType"): "str", ("types", "NoneType"): "type(None)",
    ("types", "ListType"): "list", ("types", "DictType"): "dict", ("types", "TupleType"): "tuple",
    ("types", "IntType"): "int", ("types", "UnicodeType"): "str", ("types", "ClassType"): "type",
    ("platform", "linux_distribution"): "(lambda: ('Linux', '1', ''))",
    ("numpy", "NaN"): "float('nan')", ("numpy", "float"): "float", ("numpy", "int"): "int", ("numpy", "bool"): "bool",
    ("numpy", "object"): "object", ("numpy", "str"): "str", ("numpy", "Inf"): "float('inf')",
}  # fmt: skip
"""Names that modules lost in newer versions, and what they were: (module, name) to source of the value."""

SUBMODULES: dict[tuple[str, str], str] = {
    (module, name): f"{module}.{name}"
    for module, names in {
        "os": "path",
        "xml": "dom etree sax",
        "urllib": "parse request error",
        "scipy": "stats signal ndimage spatial linalg optimize interpolate sparse misc io",
        "concurrent": "futures",
        "importlib": "util machinery metadata resources",
        "email": "utils message mime header",
        "logging": "handlers config",
        "multiprocessing": "pool managers",
        "PIL": "Image ImageDraw ImageFont ImageChops ImageOps",
        "distutils": "spawn util version",
        "html": "parser entities",
        "http": "client server cookies",
        "unittest": "mock",
        "six": "moves",
        "matplotlib": "pyplot cm colors patches",
        "skimage": "io transform color",
        "collections": "abc",
        "dateutil": "parser tz relativedelta",
    }.items()
    for name in names.split()
}
"""Submodules that must be imported for a module to have them."""
