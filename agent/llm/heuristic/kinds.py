"""Kinds of arguments: what values a test gives for each, and by which names and annotations they are known."""

from __future__ import annotations

VALUES: dict[str, tuple[str, ...]] = {
    "text": ("'Hello World'", "'abc'", "''"),
    "word": ("'abc'", "'name'"),
    "char": ("'a'", "' '"),
    "int": ("3", "1"),
    "float": ("2.5", "0.5"),
    "bool": ("True", "False"),
    "numbers": ("[3, 1, 2]", "[1.5, 2.5]"),
    "texts": ("['beta', 'alpha', 'beta']", "['a b', 'c']"),
    "nested": ("[[1, 2], [3, 4]]", "[[1, [2]], 3]"),
    "pairs": ("[('a', 1), ('b', 2)]",),
    "tuple": ("(1, 2)", "(1, 2, 3)"),
    "point": ("(1.0, 2.0)", "(1.0, 2.0, 3.0)"),
    "set": ("{1, 2, 3}", "{'a', 'b'}"),
    "dict": ("{'a': 1, 'b': 2}", "{'a': {'b': 'c'}}"),
    "bytes": ("b'abc'", "b'\\x00\\x01\\x02\\x03'"),
    "callable": ("(lambda *values, **named: values[0] if values else None)",),
    "date": ("__import__('datetime').datetime(2020, 2, 3, 4, 5, 6)", "__import__('datetime').date(2020, 2, 3)"),
    "date_text": ("'2020-02-03'", "'20200203'", "'2020-02-03T04:05:06'", "'2020-02-03 04:05:06'"),
    "decimal": ("__import__('decimal').Decimal('2.345')",),
    "error": ("ValueError('wrong')",),
    "type": ("int", "str"),
    "object": ("_GivenObject()",),
    "number_text": ("'12'", "'12.5'"),
    "hex_text": ("'1f'", "'0x1f'"),
    "bool_text": ("'true'", "'no'"),
    "json_text": ('\'{"a": 1, "b": [1, 2]}\'',),
    "xml_text": ("'<root><item>one</item></root>'",),
    "html_text": ("'<p>Hello <a href=\"/x\">World</a></p>'",),
    "url": ("'http://example.com/path/page?a=1#part'",),
    "email": ("'user@example.com'",),
    "host": ("'localhost'",),
    "port": ("8080",),
    "format": ("'%Y-%m-%d'",),
    "pattern": ("'a+'",),
    "encoding": ("'utf-8'",),
    "module": ("'json'",),
    "version": ("'1.2.3'",),
    "path": ("_given_file()",),
    "json_path": ("_given_file('.json')",),
    "csv_path": ("_given_file('.csv')",),
    "yaml_path": ("_given_file('.yaml')",),
    "xml_path": ("_given_file('.xml')",),
    "zip_path": ("_given_file('.zip')",),
    "image_path": ("_given_file('.png')",),
    "new_path": ("_given_new_path()",),
    "folder": ("_given_folder()",),
    "file": ("_given_handle()", "_given_handle('rb')"),
    "xml_element": ("__import__('xml.etree.ElementTree').etree.ElementTree.fromstring('<a b=\"c\"><d>text</d></a>')",),
    "xml_document": ("__import__('xml.dom.minidom').dom.minidom.parseString('<a>text</a>').documentElement",),
    "loop": ("__import__('asyncio').new_event_loop()",),
    "vector": ("__import__('numpy').array([3.0, 1.0, 2.0])",),
    "matrix": ("__import__('numpy').array([[2.0, 1.0], [1.0, 3.0]])",),
    "image": ("__import__('numpy').arange(75, dtype='uint8').reshape(5, 5, 3)",),
    "pil_image": ("__import__('PIL.Image').Image.new('RGB', (8, 6), 'white')",),
    "frame": ("__import__('pandas').DataFrame({'a': [1, 2, 2], 'b': ['x', 'y', 'y']})",),
    "series": ("__import__('pandas').Series([1.0, 2.0, 2.0])",),
}
"""Source of the values to try for each kind, the best guess first."""

BY_ANNOTATION: dict[str, str] = {
    "str": "text", "text": "text", "anystr": "text", "int": "int", "float": "float", "complex": "float", "number": "float",
    "bool": "bool", "bytes": "bytes", "bytearray": "bytes", "list": "numbers", "sequence": "numbers",
    "iterable": "numbers", "iterator": "numbers", "collection": "numbers", "tuple": "tuple", "set": "set",
    "frozenset": "set", "dict": "dict", "mapping": "dict", "mutablemapping": "dict", "ordereddict": "dict",
    "callable": "callable", "function": "callable", "path": "path", "pathlike": "path", "io": "file", "textio": "file",
    "binaryio": "file", "file": "file", "date": "date", "datetime": "date", "decimal": "decimal", "type": "type",
    "ndarray": "vector", "array": "vector", "dataframe": "frame", "series": "series", "exception": "error",
    "baseexception": "error", "element": "xml_element", "unicode": "text", "basestring": "text", "string": "text",
    "integer": "int", "boolean": "bool", "dictionary": "dict", "array_like": "vector",
    "image": "pil_image",
}  # fmt: skip
"""Kinds by the last part of a type's name, in lower case; for annotations and types named in docstrings."""

BY_NAME: dict[str, str] = {
    name: kind
    for kind, names in {
        "text": "s string text txt str st sentence line content contents input instr input_string string_ message msg title "
        "body raw source src paragraph phrase label html_text description comment token val_str",
        "word": "word name key prefix suffix attr attribute field col column id ident identifier sep separator delimiter "
        "tag mode unit keyword sid user username password substring sub old new topic symbol token_name column_name",
        "char": "c ch char character letter",
        "int": "n i j k m num number count size length limit index idx width height depth level year month day hours "
        "minutes seconds start end stop step decimals digits precision max_length min_length seed offset position pos "
        "total rows cols ndigits n_digits num_pts page timeout base sig bits",
        "float": "x y z f value_float ratio rate alpha beta gamma sigma mean std stdev mu lat lon lat1 lat2 lon1 lon2 "
        "lower upper minval maxval low high radius angle temperature price amount percent threshold x0 x1 y0 y1 dx dy",
        "bool": "flag verbose force debug recursive enabled",
        "numbers": "l lst list items values numbers nums seq sequence array arr iterable data elements collection xs vals "
        "_list list1 list2 list_ mylist my_list the_list l1 l2 ints samples vec_a vec_b v w v1 v2 vec1 vec2 lis series_ "
        "the_array list_a list_b",
        "texts": "strings words lines names tokens texts str_list string_list keys columns labels files prefixes args argv "
        "list_of_strings candidates fields sentences paths",
        "nested": "list_of_lists nested nested_list lists matrix_ listoflists grid table rows_ l2d",
        "pairs": "pairs tuples tups edges list_of_tuples",
        "tuple": "tup tuple_ t shape image_size pair",
        "point": "p pt point pt1 pt2 p1 p2 point1 point2 coord coords coordinate center",
        "set": "set_ set1 set2 myset",
        "dict": "d dct dic dict_ dictionary mapping map_ params options kwargs config conf settings obj_dict d1 d2 dict1 "
        "dict2 a_dict my_dict context headers record attrs replacements repls meta metadata payload",
        "bytes": "b byte bytes_ buf buffer raw_bytes byte_string data_bytes bytestring blob",
        "callable": "func fn function fun callback f_ predicate method decorator callable_ key_func wrapped handler coro_func",
        "date": "date dt datetime_ day_ start_date end_date d_ timestamp_dt when pydatetime",
        "date_text": "date_str date_string datestr dt_str datetime_str date_text time_str datestring",
        "error": "err error exc exception e",
        "type": "type_ typ klass cls_ cast datatype types",
        "object": "obj object_ instance thing o value_object model item_obj",
        "number_text": "num_str number_str numeric_string",
        "hex_text": "hex hex_str hex_string hexstr hex_value",
        "json_text": "json_str json_string json_text jsonstr",
        "xml_text": "xml xml_str xml_string",
        "html_text": "html markup",
        "url": "url uri link href endpoint api_url",
        "email": "email mail address",
        "host": "host hostname ip server",
        "port": "port",
        "format": "fmt format_ date_format",
        "pattern": "pattern regex regexp pat",
        "encoding": "encoding charset codec",
        "module": "module module_name modname",
        "version": "version ver version_string",
        "path": "path filename file_name fname filepath file_path fn_ infile input_file file_path_name fp_path filename1 "
        "path_to_file pathname in_path source_path",
        "new_path": "out_path outfile output_file output_path out_file dest destination target_path outfname save_path",
        "folder": "dir directory folder dirname dir_name dir_path dpath folder_path root_dir basedir rootdir target_folder "
        "output_dir cwd dirpath",
        "file": "fp fh fo fileobj file_obj handle stream file_handle fd temp_file file file_",
        "csv_path": "csv_file csv_path csv_filename csvfile",
        "json_path": "json_file json_path json_filename",
        "yaml_path": "yaml_file yaml_path",
        "zip_path": "zip_path zip_file zipfile_path archive",
        "image_path": "image_path img_path image_file",
        "xml_element": "elem element node el xml_node",
        "loop": "loop event_loop",
        "vector": "vector vec np_array ndarray nparray",
        "matrix": "matrix mat cmatrix",
        "image": "img image im frame_img",
        "frame": "df dataframe data_frame pandas_df",
        "series": "series ser",
    }.items()
    for name in names.split()
}
"""Kinds by the whole name of a parameter, leading underscores left out."""

BY_WORD: dict[str, str] = {
    "path": "path", "file": "path", "filename": "path", "dir": "folder", "directory": "folder", "folder": "folder",
    "str": "text", "string": "text", "text": "text", "name": "word", "key": "word", "list": "numbers", "lst": "numbers",
    "array": "numbers", "arr": "numbers", "dict": "dict", "map": "dict", "func": "callable", "fn": "callable",
    "callback": "callable", "date": "date", "num": "int", "count": "int", "size": "int", "length": "int", "index": "int",
    "number": "int", "df": "frame", "img": "image", "image": "image", "url": "url", "bytes": "bytes", "matrix": "matrix",
    "vector": "vector", "words": "texts", "lines": "texts", "strings": "texts", "names": "texts", "values": "numbers",
    "items": "numbers", "tuple": "tuple", "set": "set", "obj": "object", "object": "object", "id": "word", "color": "word",
}  # fmt: skip
"""Kinds by the last telling word of a parameter's name."""

BY_ATTRIBUTE: dict[str, str] = {
    attribute: kind
    for kind, attributes in {
        "text": "split strip lower upper startswith endswith lstrip rstrip splitlines encode title isdigit isalpha "
        "isidentifier casefold capitalize partition rpartition zfill ljust rjust center",
        "numbers": "append extend insert sort",
        "dict": "items keys iteritems iterkeys itervalues setdefault has_key",
        "set": "union intersection issubset issuperset symmetric_difference",
        "bytes": "decode hex",
        "file": "read readline readlines seek tell fileno",
        "date": "year month strftime isoformat timetuple tzinfo astimezone weekday",
        "frame": "columns iloc loc groupby iterrows pivot_table dropna set_index",
        "matrix": "shape ndim dtype reshape astype transpose",
        "image": "getpixel",
        "xml_element": "attrib findall tag itertext",
        "xml_document": "childNodes nodeType firstChild getElementsByTagName nodeValue",
        "callable": "__name__ __doc__ __wrapped__ __code__",
        "loop": "create_task run_until_complete",
    }.items()
    for attribute in attributes.split()
}
"""Kinds by an attribute that the code takes of a parameter."""

BY_CALL: dict[str, str] = {
    "open": "path", "os.path.exists": "path", "os.path.isfile": "path", "os.path.getmtime": "path", "os.stat": "path",
    "os.path.basename": "path", "os.path.splitext": "path", "os.remove": "path", "os.chmod": "path",
    "os.listdir": "folder", "os.walk": "folder", "os.path.isdir": "folder", "os.makedirs": "folder", "os.mkdir": "new_path",
    "os.scandir": "folder", "os.chdir": "folder", "range": "int", "xrange": "int", "abs": "float", "round": "float",
    "chr": "int", "ord": "char", "bin": "int", "hex": "int", "math.floor": "float", "math.sqrt": "float", "log10": "float",
    "math.log10": "float", "floor": "float", "sum": "numbers", "max": "numbers", "min": "numbers", "sorted": "numbers",
    "json.loads": "json_text", "json.load": "file", "yaml.load": "file", "yaml.safe_load": "file",
    "urlparse": "url", "enumerate": "numbers", "zip": "numbers", "base64.b64decode": "bytes", "np.array": "numbers",
    "inspect.signature": "callable", "wraps": "callable", "functools.wraps": "callable", "importlib.import_module": "module",
    "PIL.Image.open": "image_path", "Image.open": "image_path", "cv2.imread": "image_path",
    "zipfile.ZipFile": "zip_path", "np.linalg.norm": "vector", "np.dot": "vector", "cv2.cvtColor": "image",
    "glob.glob": "path", "datetime.strptime": "date_text", "datetime.datetime.strptime": "date_text",
}  # fmt: skip
"""Kinds by a call to which the code gives a parameter as the first argument."""

IN_QUERY: dict[str, str] = {
    "string": "text", "list": "numbers", "dict": "dict", "int": "int", "number": "int", "float": "float", "path": "path",
    "file": "path", "folder": "folder", "tuple": "tuple", "set": "set", "date": "date", "bytes": "bytes", "byte": "bytes",
    "url": "url", "dataframe": "frame", "matrix": "matrix", "vector": "vector", "image": "image", "function": "callable",
    "object": "object", "word": "text", "json": "json_text", "xml": "xml_element", "csv": "csv_path", "email": "email",
    "numpy": "vector", "seri": "series", "html": "html_text", "hex": "hex_text",
}  # fmt: skip
"""Kinds that a query's terms suggest for parameters about which nothing else is known."""
